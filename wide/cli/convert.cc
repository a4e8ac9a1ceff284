// motley-wide convert and inspect: data and models from one form to another, and looked into.
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "wide/cache.h"
#include "wide/cli/command_line.h"
#include "wide/cli/commands.h"
#include "wide/cli/flags.h"
#include "wide/cli/outputs.h"
#include "wide/model_text.h"
#include "wide/report.h"
#include "wide/schema.h"

DEFINE_int32(top, 20, "features to list");
DECLARE_bool(normalise);

namespace motley::wide {
namespace {

void convert_text_model(const std::string& file) {
  const Model model =
      load_text(file, FLAGS_normalise ? Normalisation::kInstance : Normalisation::kNone);
  model.save(FLAGS_output);
  if (FLAGS_quiet) return;
  print_result(fmt::format("{} with {} features, saved to {}", name(model.options().kind),
                           model.layout().slots, FLAGS_output));
}

void print_recipe(const std::string& recipe) {
  if (recipe.empty()) return;
  const Schema schema = from_recipe(recipe);
  print_result(fmt::format("reads {} with ids of {} bits{}", name(schema.format), schema.bits,
                           schema.columns.empty() ? "" : ", --schema " + to_text(schema.columns)));
}

void inspect_data(const Dataset& data, const std::string& file) {
  double sum = 0;
  for (const float label : data.labels) sum += static_cast<double>(label);
  Column<std::uint32_t> ids = data.ids;
  std::sort(ids.begin(), ids.end());
  const auto distinct = std::unique(ids.begin(), ids.end()) - ids.begin();
  print_result(fmt::format("{}: {}, {} rows, {} entries, {} features, mean label {:.6f}{}", file,
                           name(data.format), data.rows(), data.entries(), distinct,
                           sum / static_cast<double>(data.rows()),
                           data.weights.empty() ? "" : ", with weights"));
  print_recipe(data.recipe);
}

void inspect_model(const Model& model, const Dataset& names) {
  const ModelOptions& o = model.options();
  print_result(fmt::format(
      "{}, {} loss, {}, k {}, {} features, {} fields, rows {}, seed {}", name(o.kind), name(o.loss),
      name(o.optimizer), has_factors(o.kind) ? o.factors : 0, model.layout().slots,
      model.fields().size(),
      o.normalisation == Normalisation::kInstance ? "divided by their norms" : "as they are",
      o.seed));
  print_result(fmt::format("bias {:+.6f}, offset {:+.6f}, {:.1f} MiB",
                           model.weights()[Layout::kBias], model.offset(),
                           static_cast<double>(model.layout().size()) * 4 / (1 << 20)));
  print_recipe(model.recipe());
  print_result("heaviest features: weight, length of factors, feature");
  for (const HeavyFeature& f : heaviest(model, static_cast<std::size_t>(FLAGS_top))) {
    const auto named = names.names.find(f.id);
    print_result(fmt::format("{:+10.5f} {:9.5f}  {}", f.weight, f.factors,
                             named != names.names.end() ? named->second : fmt::format("{}", f.id)));
  }
}

}  // namespace

void convert(const std::vector<std::string>& files) {
  if (files.size() != 1) throw UsageError("convert takes one FILE");
  if (FLAGS_output.empty()) throw UsageError("convert needs --output FILE");
  const std::string& file = files[0];
  check_outputs({{"output", FLAGS_output}}, inputs_of(file));
  if (Model::is_saved(file)) {
    save_text(Model::load(file), FLAGS_output);
    return FLAGS_quiet ? void() : print_result("the model as text, saved to " + FLAGS_output);
  }
  if (is_model_text(file)) return convert_text_model(file);
  const Dataset data = read_data(file, read_options(Labels::kReal));
  save_cache(data, FLAGS_output);
  if (FLAGS_quiet) return;
  print_result(fmt::format("{} rows with {} entries, saved to {}", data.rows(), data.entries(),
                           FLAGS_output));
}

void inspect(const std::vector<std::string>& files) {
  if (files.empty() || files.size() > 2) throw UsageError("inspect takes MODEL [DATA], or DATA");
  check_flag("top", FLAGS_top >= 0, "at least 0");
  if (!Model::is_saved(files[0])) {
    if (files.size() == 2) throw UsageError(files[0] + " is no model");
    return inspect_data(read_data(files[0], read_options(Labels::kReal)), files[0]);
  }
  const Model model = Model::load(files[0]);
  Dataset names;
  if (files.size() == 2) {
    ReadOptions read = read_options(model, Labels::kOptional);
    read.names = true;
    names = read_data(files[1], read);
  }
  inspect_model(model, names);
}

}  // namespace motley::wide
