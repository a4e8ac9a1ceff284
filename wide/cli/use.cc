// motley-wide predict and eval.
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "wide/cli/command_line.h"
#include "wide/cli/commands.h"
#include "wide/cli/flags.h"
#include "wide/cli/outputs.h"
#include "wide/file/whole_file.h"
#include "wide/report.h"
#include "wide/schema.h"
#include "wide/slices.h"

DEFINE_string(by, "", "field whose values part the rows");
DECLARE_string(report);

namespace motley::wide {
namespace {

std::vector<std::string> inputs_with(const std::string& model, const std::string& data) {
  std::vector<std::string> inputs = inputs_of(data);
  inputs.push_back(model);
  return inputs;
}

// Lines of as many cells as there are without a label may as well lack another column, behind which
// all features are then of the wrong one.
void check_columns(const Model& model, std::size_t cells, std::uint64_t unknown,
                   std::uint64_t all) {
  if (cells == 0 || 2 * unknown <= all) return;
  const std::vector<SchemaColumn> columns = from_recipe(model.recipe()).columns;
  const auto wanted = std::count_if(columns.begin(), columns.end(),
                                    [](const SchemaColumn& column) { return column.name != "*"; });
  throw Error(ErrorCode::kInvalid,
              fmt::format("lines have {} cells of {}, so that they were read as rows without a "
                          "label; but {:.1f} % of their features are unknown to the model, as if "
                          "another column were missing. Give all {} cells, with any label",
                          cells, wanted,
                          100 * static_cast<double>(unknown) / static_cast<double>(all), wanted));
}

// Rows of a file as samples. Features that the model does not know are told of; a file of nothing
// else was most likely not meant for it.
Samples samples_of(const Model& model, Dataset data, const std::string& file) try {
  const std::size_t unlabelled_cells = data.unlabelled_cells;
  Samples samples = model.prepare(std::move(data));
  const std::uint64_t all = samples.unknown_entries + samples.slots.size();
  if (samples.unknown_entries == 0) return samples;
  check_columns(model, unlabelled_cells, samples.unknown_entries, all);
  if (samples.slots.empty()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("the model knows none of the features of all {} entries, so that "
                            "nothing would tell one row from another. Is it the model for them?",
                            all));
  }
  if (!FLAGS_quiet) {
    fmt::print(stderr,
               "motley-wide: {} of {} entries have features that the model does not know; "
               "they count as weight 0\n",
               samples.unknown_entries, all);
  }
  return samples;
} catch (const Error& error) {
  throw Error(error.code(), fmt::format("{}: {}", file, error.what()));
}

}  // namespace

void predict(const std::vector<std::string>& files) {
  if (files.size() != 2) throw UsageError("predict takes MODEL and DATA");
  check_outputs({{"output", FLAGS_output}}, inputs_with(files[0], files[1]));
  const Model model = Model::load(files[0]);
  ReadOptions read = read_options(model, Labels::kOptional);
  read.fields = has_fields(model.options().kind);
  const Samples samples = samples_of(model, read_data(files[1], read), files[1]);
  std::string text;
  for (const float score : model.scores(samples, FLAGS_threads)) {
    // The shortest that reads back.
    text += fmt::format("{}\n", prediction_of(model.options().loss, score));
  }
  write_output(text);
}

void eval(const std::vector<std::string>& files) {
  if (files.size() != 2) throw UsageError("eval takes MODEL and DATA");
  check_outputs({{"report", FLAGS_report}}, inputs_with(files[0], files[1]));
  const Model model = Model::load(files[0]);
  const Loss loss = model.options().loss;
  const bool pages = !FLAGS_by.empty() || !FLAGS_report.empty();
  ReadOptions read = read_options(model, labels_for(loss));
  read.names = pages;
  read.fields = has_fields(model.options().kind) || !FLAGS_by.empty();
  Dataset data = read_data(files[1], read);
  Dataset names;  // and what says how columns are called
  names.names = std::move(data.names);
  data.names.clear();
  std::vector<std::uint64_t> keys;
  if (!FLAGS_by.empty()) keys = keys_of(data, field_named(data, FLAGS_by));
  const Samples samples = samples_of(model, std::move(data), files[1]);
  const std::vector<float> scores = model.scores(samples, FLAGS_threads);
  const EvaluateOptions options{.loss = loss, .weights = samples.weights};
  const Evaluation result = evaluate(scores, samples.labels, options);
  print_result(to_text(result, loss));
  if (!FLAGS_quiet && loss != Loss::kSquared) print_result(details(result));
  std::vector<Slice> slices;
  if (!keys.empty()) slices = evaluate_slices(scores, samples.labels, keys, names, options, 20);
  for (const Slice& slice : slices) {
    print_result(
        fmt::format("{}: {} rows  {}", slice.what, slice.result.rows, to_text(slice.result, loss)));
  }
  if (FLAGS_report.empty()) return;
  WholeFile file(FLAGS_report);
  file.put(report_html(model,
                       {.title = fmt::format("{} on {}", files[0], files[1]),
                        .scores = scores,
                        .labels = samples.labels,
                        .result = result,
                        .epochs = {},
                        .slices = slices,
                        .sliced_by = FLAGS_by},
                       names));
  file.commit();
}

}  // namespace motley::wide
