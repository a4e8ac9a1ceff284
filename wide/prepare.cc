// Model::prepare: rows of a data set to samples of a model, in the memory of the data set.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include "comm/error.h"
#include "wide/model.h"
#include "wide/samples.h"
#include "wide/schema.h"

namespace motley::wide {
namespace {

double norm_of(const Dataset& data, std::size_t row) {
  if (data.values.empty()) {
    return std::sqrt(static_cast<double>(data.row_begin[row + 1] - data.row_begin[row]));
  }
  double squares = 0;
  for (std::uint64_t e = data.row_begin[row]; e < data.row_begin[row + 1]; ++e) {
    squares += static_cast<double>(data.values[e]) * static_cast<double>(data.values[e]);
  }
  return std::sqrt(squares);
}

// The fields of each sample are 0, 1, … n - 1.
bool is_complete(const Samples& samples, std::size_t fields) {
  for (std::size_t r = 0; r < samples.rows(); ++r) {
    const std::uint64_t begin = samples.row_begin[r];
    if (samples.row_begin[r + 1] - begin != fields) return false;
    for (std::size_t f = 0; f < fields; ++f) {
      if (samples.fields[begin + f] != f) return false;
    }
  }
  return samples.rows() > 0 && fields > 0;
}

bool is_distinct(const Column<std::uint64_t>& row_begin, const Column<std::uint32_t>& slots,
                 std::size_t many) {
  std::vector<std::uint64_t> last(many, 0);  // 1 + the last row that had an entry of a slot
  for (std::size_t r = 0; r + 1 < row_begin.size(); ++r) {
    for (std::uint64_t e = row_begin[r]; e < row_begin[r + 1]; ++e) {
      std::uint64_t& seen = last[slots[e]];
      if (seen == r + 1) return false;
      seen = r + 1;
    }
  }
  return true;
}

// One value for each sample, where all its edges have the same.
void make_uniform(Samples& samples) {
  Column<float> values(samples.rows(), 0.0f);
  for (std::size_t r = 0; r < samples.rows(); ++r) {
    const auto begin = samples.values.begin() + static_cast<std::ptrdiff_t>(samples.row_begin[r]);
    const auto end = samples.values.begin() + static_cast<std::ptrdiff_t>(samples.row_begin[r + 1]);
    if (begin == end) continue;
    if (std::any_of(begin, end, [&](float x) { return x != *begin; })) return;
    values[r] = *begin;
  }
  samples.values = std::move(values);
  samples.uniform = true;
}

std::string kind_of(const Schema& schema, const char* where_as_they_are) {
  if (schema.bits == 0) return fmt::format("{} with ids as they are", where_as_they_are);
  return fmt::format("{} with ids hashed to {} bits", name(schema.format), schema.bits);
}

// Throws kInvalid where ids of `data` are made so that they cannot be those of the model.
void check_ids(const ModelOptions& options, const std::string& recipe, const Dataset& data) {
  if (data.entries() == 0 || data.recipe == recipe) return;
  const Schema mine = from_recipe(recipe);
  const Schema theirs = from_recipe(data.recipe);
  if (mine.bits == theirs.bits && mine.columns.empty() == theirs.columns.empty()) return;
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("the model was trained on {}, but these rows are {}, so that they have no "
                  "feature in common. Give rows of the model's format",
                  kind_of(mine, has_fields(options.kind) ? "libffm" : "libsvm or libffm"),
                  kind_of(theirs, name(data.format))));
}

struct AsItIs {
  std::uint32_t operator()(std::uint32_t slot) const { return slot; }
};

}  // namespace

bool is_distinct(const Dataset& data, std::size_t slots) {
  return is_distinct(data.row_begin, data.ids, slots);
}

Samples Model::prepare(Dataset data) const {
  check_ids(options_, recipe_, data);
  Samples out =
      prepared(std::move(data), [this](std::uint32_t id) { return dictionary_.slot(id); });
  out.distinct = is_distinct(out.row_begin, out.slots, dictionary_.size());
  return out;
}

Samples Model::prepare_slots(Dataset data, bool distinct) const {
  Samples out = prepared(std::move(data), AsItIs{});
  out.distinct = distinct;
  return out;
}

template <class SlotOf>
Samples Model::prepared(Dataset data, SlotOf slot_of) const {
  const bool fields = has_fields(options_.kind);
  if (fields && data.fields.empty() && data.entries() > 0) {
    throw Error(ErrorCode::kInvalid,
                std::string("model: ") + name(options_.kind) +
                    " looks at fields, but libsvm rows have none. Give libffm rows "
                    "(field:index:value)");
  }
  Samples out;
  out.uniform = data.values.empty();
  if (out.uniform) out.values.resize(data.rows());
  if (fields) out.fields.reserve(data.entries());
  std::size_t kept = 0;
  for (std::size_t r = 0; r < data.rows(); ++r) {
    const std::uint64_t begin = data.row_begin[r];
    const std::uint64_t end = data.row_begin[r + 1];
    const double row_norm =
        options_.normalisation == Normalisation::kInstance ? norm_of(data, r) : 1.0;
    const double norm = row_norm > 0 ? row_norm : 1.0;
    data.row_begin[r] = kept;  // its old value was last needed as this row's begin
    if (std::is_same_v<SlotOf, AsItIs> && out.uniform && !fields) {  // nothing is left out
      kept = end;
      out.values[r] = end > begin ? static_cast<float>(1 / norm) : 0.0f;
      continue;
    }
    for (std::uint64_t e = begin; e < end; ++e) {
      const std::uint32_t slot = slot_of(data.ids[e]);
      if (slot == Dictionary::kUnknown) continue;
      if (fields) {
        const auto f = std::lower_bound(fields_.begin(), fields_.end(), data.fields[e]);
        if (f == fields_.end() || *f != data.fields[e]) continue;
        out.fields.push_back(static_cast<std::uint16_t>(f - fields_.begin()));
      }
      data.ids[kept] = slot;
      if (!out.uniform) {
        data.values[kept] = static_cast<float>(static_cast<double>(data.values[e]) / norm);
      }
      ++kept;
    }
    if (out.uniform) out.values[r] = kept > data.row_begin[r] ? static_cast<float>(1 / norm) : 0.0f;
  }
  out.unknown_entries = data.entries() - kept;
  data.row_begin.back() = kept;
  data.ids.resize(kept);
  out.row_begin = std::move(data.row_begin);
  out.labels = std::move(data.labels);
  out.weights = std::move(data.weights);
  out.slots = std::move(data.ids);
  if (!out.uniform) {
    data.values.resize(kept);
    out.values = std::move(data.values);
  }
  if (fields) out.complete = is_complete(out, fields_.size());
  if (!out.uniform) make_uniform(out);
  return out;
}

}  // namespace motley::wide
