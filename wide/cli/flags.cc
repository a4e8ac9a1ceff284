#include "wide/cli/flags.h"

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "comm/error.h"
#include "wide/cache.h"
#include "wide/cli/command_line.h"
#include "wide/file/whole_file.h"
#include "wide/read_cached.h"

DEFINE_int32(threads, 1, "of this worker");
DEFINE_string(format, "auto", "auto, libsvm, libffm, csv, criteo or avazu");
DEFINE_string(schema, "", "NAME:TYPE,… of columns");
DEFINE_string(delimiter, "", "of columns: one character, or tab");
DEFINE_int32(bits, 0, "of hashed ids; not given: columns 32, libsvm and libffm as they are");
DEFINE_string(weights, "", "file with a weight for each row");
DEFINE_bool(cache, false, "keep FILE.cache beside FILE");
DEFINE_string(output, "", "file to write");
DEFINE_bool(quiet, false, "print the result only");

namespace motley::wide {
namespace {

constexpr Format kFormats[] = {Format::kLibsvm, Format::kLibffm, Format::kCsv, Format::kCriteo,
                               Format::kAvazu};

std::optional<Format> format_flag() {
  if (FLAGS_format == "auto") return std::nullopt;
  for (const Format format : kFormats) {
    if (FLAGS_format == name(format)) return format;
  }
  throw UsageError(fmt::format("--format is \"{}\". Use auto, libsvm, libffm, csv, criteo or avazu",
                               FLAGS_format));
}

char delimiter_flag() {
  if (FLAGS_delimiter.empty()) return 0;
  if (FLAGS_delimiter == "tab" || FLAGS_delimiter == "\\t") return '\t';
  if (FLAGS_delimiter.size() == 1) return FLAGS_delimiter[0];
  throw UsageError(
      fmt::format("--delimiter is \"{}\". Use one character, or tab", FLAGS_delimiter));
}

// Ids are only those of the model if they are made alike.
void check_alike(const ReadOptions& model) {
  if (is_given("bits") && FLAGS_bits != model.bits) {
    throw UsageError(fmt::format("--bits is {}, but the model has {}. Leave the flag out",
                                 FLAGS_bits,
                                 model.bits == 0 ? "none" : fmt::to_string(model.bits)));
  }
  for (const SchemaColumn& said : parse_columns(FLAGS_schema)) {
    const auto known = std::ranges::find(model.columns, said.name, &SchemaColumn::name);
    if (said.name == "*" || (known != model.columns.end() && known->type == said.type)) continue;
    throw UsageError(fmt::format(
        "--schema says {}:{}, but the model {}. Leave the flag out", said.name, name(said.type),
        known == model.columns.end() ? "has no such column"
                                     : std::string("has ") + name(known->type)));
  }
}

bool is_tokens(Format format) { return format == Format::kLibsvm || format == Format::kLibffm; }

void check_format(const Model& model, Format format) {
  const Schema schema = from_recipe(model.recipe());
  if (is_tokens(format) == is_tokens(schema.format)) return;
  throw UsageError(
      fmt::format("--format is {}, but the model was trained on {}. Leave the flag out",
                  name(format), schema.bits == 0 ? "libsvm or libffm" : name(schema.format)));
}

}  // namespace

bool is_given(const char* flag) { return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default; }

void check_flag(const char* flag, bool holds, const char* range) {
  if (holds) return;
  throw UsageError(fmt::format("--{} is {}, but must be {}", flag,
                               gflags::GetCommandLineFlagInfoOrDie(flag).current_value, range));
}

void check_threads() {
  check_flag("threads", FLAGS_threads >= 1 && FLAGS_threads <= 1024, "in [1, 1024]");
}

std::vector<std::string> split_files(const std::string& files) {
  std::error_code none;
  if (std::filesystem::exists(files, none)) return {files};
  std::vector<std::string> parts(1);
  for (const char c : files) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Labels labels_for(Loss loss) { return loss == Loss::kSquared ? Labels::kReal : Labels::kBinary; }

ReadOptions read_options(Labels labels) try {
  ReadOptions options{.format = format_flag(),
                      .labels = labels,
                      .threads = FLAGS_threads,
                      .bits = FLAGS_bits,
                      .columns = parse_columns(FLAGS_schema),
                      .delimiter = delimiter_flag()};
  if (is_given("bits")) check_flag("bits", FLAGS_bits >= 1 && FLAGS_bits <= 32, "in [1, 32]");
  check_threads();
  return options;
} catch (const Error& error) {
  throw UsageError(error.what());
}

ReadOptions read_options(const Model& model, Labels labels) {
  check_threads();
  ReadOptions options = alike(model.recipe(), {.labels = labels, .threads = FLAGS_threads});
  if (const auto format = format_flag()) {
    check_format(model, *format);
    options.format = format;
  }
  if (const char delimiter = delimiter_flag()) options.delimiter = delimiter;
  check_alike(options);
  return options;
}

std::vector<std::string> inputs_of(const std::string& files) {
  std::vector<std::string> inputs = split_files(files);
  if (!FLAGS_weights.empty()) inputs.push_back(FLAGS_weights);
  return inputs;
}

Dataset read_data(const std::string& files, const ReadOptions& options, Weights weights) {
  const std::vector<std::string> paths = split_files(files);
  Dataset data;
  if (paths.size() == 1 && is_cache(paths[0])) {
    data = load_cache(paths[0], options);
  } else if (FLAGS_cache && paths[0] != "-") {
    data = read_cached(paths, paths[0] + ".cache", options, [](LogLevel, const std::string& text) {
      if (!FLAGS_quiet) fmt::print(stderr, "motley-wide: {}\n", text);
    });
  } else {
    data = read_files(paths, options);
  }
  if (weights == Weights::kByFlag && !FLAGS_weights.empty()) read_weights(FLAGS_weights, data);
  return data;
}

std::string to_text(const Evaluation& e, Loss loss) {
  if (loss == Loss::kSquared) return fmt::format("RMSE {:.6f}", e.rmse);
  return fmt::format(
      "{} {:.6f}  AUC {}  accuracy {:.4f}", loss == Loss::kLogistic ? "log loss" : "hinge loss",
      e.loss, e.auc ? fmt::format("{:.6f}", *e.auc) : "none (all labels are alike)", e.accuracy);
}

std::string details(const Evaluation& e) {
  const auto figure = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.4f}", *value) : std::string("none");
  };
  return fmt::format(
      "{} rows, {} positives  normalised entropy {}  calibration {}  precision {}  recall {}",
      e.rows, e.positives, figure(e.normalised_entropy), figure(e.calibration), figure(e.precision),
      figure(e.recall));
}

void print_result(const std::string& line) {
  if (std::fprintf(stdout, "%s\n", line.c_str()) < 0 || std::fflush(stdout) != 0) {
    throw_errno("write standard output");
  }
}

void write_output(const std::string& text) {
  if (!FLAGS_output.empty()) {
    WholeFile file(FLAGS_output);
    file.put(text);
    return file.commit();
  }
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw_errno("write standard output");
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace motley::wide
