// motley-wide serve: predictions over HTTP.
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <httplib.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "comm/json.h"
#include "wide/cli/batcher.h"
#include "wide/cli/command_line.h"
#include "wide/cli/commands.h"
#include "wide/cli/flags.h"
#include "wide/loss.h"
#include "wide/model.h"
#include "wide/reader.h"
#include "wide/schema.h"

DEFINE_string(host, "127.0.0.1", "address to listen at");
DEFINE_int32(port, 8080, "0: any free one");
DEFINE_int32(deadline_ms, 1000, "of an answer");
DEFINE_uint64(batch_rows, 4096, "scored together, at most");
DEFINE_uint64(waiting_rows, 1 << 20, "for an answer, at most; more are refused");
DEFINE_int32(connections, 64, "handled side by side");

namespace motley::wide {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // of a request

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::kInvalid, what); }

// A cell of CSV.
std::string cell_of(const std::string& column, const Json& value) {
  std::string text;
  if (value.is_string()) {
    text = value.get<std::string>();
  } else if (value.is_boolean()) {
    text = value.get<bool>() ? "1" : "0";
  } else if (value.is_number()) {
    text = json_text(value);
  } else if (value.is_array()) {
    for (const Json& part : value) {
      if (!part.is_string())
        fail(fmt::format("column \"{}\" has a list of other than texts", column));
      text += (text.empty() ? "" : "|") + part.get<std::string>();
    }
  } else if (!value.is_null()) {
    fail(fmt::format("column \"{}\" has a value that is neither text nor number", column));
  }
  if (text.find('\n') != std::string::npos) {
    fail(fmt::format("column \"{}\" has a text with a newline", column));
  }
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

bool is_looked_at(const SchemaColumn& column) {
  return column.name != "*" && column.type != ColumnType::kLabel &&
         column.type != ColumnType::kWeight && column.type != ColumnType::kSkip;
}

void check_columns(const Json& row, const Schema& schema) {
  for (const auto& cell : row.items()) {
    if (std::ranges::find(schema.columns, cell.key(), &SchemaColumn::name) != schema.columns.end())
      continue;
    std::string known;
    for (const SchemaColumn& column : schema.columns) {
      if (is_looked_at(column)) known += (known.empty() ? "" : ", ") + column.name;
    }
    fail(fmt::format("the model has no column \"{}\"; it has {}. Leave out what it does not know",
                     cell.key(), known));
  }
}

// Rows of objects {"column": value, …} as CSV with a header. Columns that are missing are empty;
// one that the model does not know is most likely misspelt.
std::string csv_of(const Json& rows, const Schema& schema) {
  std::string text;
  std::vector<std::string> names;
  for (const SchemaColumn& column : schema.columns) {
    if (!is_looked_at(column)) continue;
    text += (names.empty() ? "" : ",") + cell_of(column.name, column.name);
    names.push_back(column.name);
  }
  text += '\n';
  for (const Json& row : rows) {
    if (!row.is_object()) fail("\"rows\" of this model are objects {\"column\": value, …}");
    check_columns(row, schema);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto found = row.find(names[i]);
      text += (i == 0 ? "" : ",") + cell_of(names[i], found == row.end() ? Json() : *found);
    }
    text += '\n';
  }
  return text;
}

class Service {
 public:
  explicit Service(const Model& model)
      : model_(model),
        options_(alike(model.recipe(), {.labels = Labels::kOptional})),
        schema_(from_recipe(model.recipe())),
        batcher_([this](Dataset rows) { return predictions_of(std::move(rows)); },
                 {.batch_rows = FLAGS_batch_rows, .waiting_rows = FLAGS_waiting_rows}) {
    if (model.recipe().empty() && has_fields(model.options().kind)) {
      options_.format = Format::kLibffm;
    }
  }

  void predict(const httplib::Request& request, httplib::Response& response) {
    ++requests_;
    Dataset rows;
    try {
      rows = rows_of_body(request);
    } catch (const std::exception& error) {
      return refuse(response, 400, error.what());
    }
    const Batcher::Answer answer =
        batcher_.predict(std::move(rows), std::chrono::milliseconds(FLAGS_deadline_ms));
    switch (answer.kind) {
      case Batcher::Answer::Kind::kOk:
        response.set_content(json_text({{"predictions", answer.predictions}}) + "\n",
                             "application/json");
        return;
      case Batcher::Answer::Kind::kBad:
        return refuse(response, 400, answer.error);
      case Batcher::Answer::Kind::kBusy:
      case Batcher::Answer::Kind::kLate:
        return refuse(response, 503, answer.error);
    }
  }

  std::string metrics() const {
    const Batcher::Counts counts = batcher_.counts();
    return fmt::format(
        "motley_wide_requests_total {}\nmotley_wide_refused_total {}\nmotley_wide_rows_total {}\n"
        "motley_wide_batches_total {}\nmotley_wide_waiting_rows {}\n",
        requests_.load(), refused_.load(), counts.rows, counts.batches, counts.waiting_rows);
  }

  void refuse(httplib::Response& response, int status, const std::string& what) {
    ++refused_;
    response.status = status;
    response.set_content(json_text({{"error", what}}, -1, Json::error_handler_t::replace) + "\n",
                         "application/json");
  }

 private:
  std::vector<float> predictions_of(Dataset rows) const {
    std::vector<float> out = model_.scores(model_.prepare(std::move(rows)), FLAGS_threads);
    for (float& x : out) x = prediction_of(model_.options().loss, x);
    return out;
  }

  Dataset rows_of_body(const httplib::Request& request) const {
    const std::string type = request.get_header_value("Content-Type");
    if (type.find("json") == std::string::npos) return parse_text(request.body, "body", options_);
    const Json body = parse_json(request.body);
    const auto rows = body.is_object() ? body.find("rows") : body.end();
    if (rows == body.end() || !rows->is_array() || rows->empty()) {
      fail("the body needs \"rows\": a list of rows");
    }
    if (!schema_.columns.empty()) {
      ReadOptions options = options_;
      options.format = Format::kCsv;
      options.delimiter = ',';
      options.header = HeaderLine::kPresent;
      return parse_text(csv_of(*rows, schema_), "rows", options);
    }
    std::string text;
    for (const Json& row : *rows) {
      if (!row.is_string()) fail("\"rows\" of this model are texts \"INDEX:VALUE …\"");
      const std::string line = row.get<std::string>();
      if (line.find('\n') != std::string::npos) fail("a row has a newline");
      // A row without features, too, has a prediction: a label makes it a row.
      text += (line.find(':') == std::string::npos ? "0 " + line : line) + '\n';
    }
    return parse_text(text, "rows", options_);
  }

  const Model& model_;
  ReadOptions options_;
  Schema schema_;
  Batcher batcher_;
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> refused_{0};
};

void add_routes(httplib::Server& server, Service& service, const Model& model) {
  server.Post("/predict", [&](const httplib::Request& request, httplib::Response& response) {
    service.predict(request, response);
  });
  server.Get("/health", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("{\"status\":\"ok\"}\n", "application/json");
  });
  server.Get("/metrics", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(service.metrics(), "text/plain; version=0.0.4");
  });
  server.Get("/model", [&](const httplib::Request&, httplib::Response& response) {
    const Json info{{"kind", name(model.options().kind)},
                    {"loss", name(model.options().loss)},
                    {"features", model.layout().slots},
                    {"recipe", model.recipe()}};
    response.set_content(json_text(info) + "\n", "application/json");
  });
}

}  // namespace

void serve(const std::vector<std::string>& files) {
  if (files.size() != 1) throw UsageError("serve takes MODEL");
  check_flag("deadline_ms", FLAGS_deadline_ms >= 1, "at least 1");
  check_flag("connections", FLAGS_connections >= 1, "at least 1");
  check_flag("batch_rows", FLAGS_batch_rows >= 1, "at least 1");
  check_flag("waiting_rows", FLAGS_waiting_rows >= 1, "at least 1");
  check_flag("port", FLAGS_port >= 0 && FLAGS_port <= 65535, "in [0, 65535]");
  check_threads();
  // Before any thread starts, so that all leave these signals to the one that waits for them.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGINT);
  sigaddset(&stop_signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  const Model model = Model::load(files[0]);
  Service service(model);
  httplib::Server server;
  server.new_task_queue = [] {
    return new httplib::ThreadPool(static_cast<std::size_t>(FLAGS_connections));  // NOLINT: its way
  };
  server.set_payload_max_length(kMostBytes);
  server.set_read_timeout(std::chrono::seconds(10));
  server.set_write_timeout(std::chrono::seconds(10));
  server.set_keep_alive_timeout(2);
  add_routes(server, service, model);
  const int port = FLAGS_port == 0 ? server.bind_to_any_port(FLAGS_host) : FLAGS_port;
  const bool bound = FLAGS_port == 0 ? port > 0 : server.bind_to_port(FLAGS_host, port);
  if (!bound) {
    throw Error(ErrorCode::kIo, fmt::format("serve: cannot listen at {} port {}. Is it in use?",
                                            FLAGS_host, FLAGS_port));
  }
  print_result(fmt::format("listening at http://{}:{}", FLAGS_host, port));
  std::thread stopper([&] {
    int signal = 0;
    sigwait(&stop_signals, &signal);
    server.stop();
  });
  server.listen_after_bind();
  // By now the signal has come, or listening failed: then it is sent, so that nobody waits for it.
  pthread_kill(stopper.native_handle(), SIGTERM);
  stopper.join();
  if (!FLAGS_quiet) print_result("stopped; all requests are answered");
}

}  // namespace motley::wide
