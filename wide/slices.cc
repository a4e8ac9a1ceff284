#include "wide/slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "comm/error.h"
#include "wide/schema.h"

namespace motley::wide {
namespace {

constexpr std::uint64_t kNone = std::uint64_t{1} << 32;

std::string text_of(std::uint64_t key, const Dataset& names) {
  if (key == kNone) return "(none)";
  const auto named = names.names.find(static_cast<std::uint32_t>(key));
  return named != names.names.end() ? named->second : fmt::format("{}", key);
}

}  // namespace

std::uint32_t field_named(const Dataset& data, const std::string& name) {
  if (data.fields.empty()) {
    throw Error(ErrorCode::kInvalid, "slices: these rows have no fields");
  }
  std::string columns;
  std::uint32_t field = 0;
  for (const SchemaColumn& column : from_recipe(data.recipe).columns) {
    const bool feature = column.name != "*" && column.type != ColumnType::kLabel &&
                         column.type != ColumnType::kWeight && column.type != ColumnType::kSkip;
    if (!feature) continue;
    if (column.name == name) return field;
    columns += fmt::format("{}{}", columns.empty() ? "" : ", ", column.name);
    ++field;
  }
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), field);
  if (columns.empty() && error == std::errc{} && stop == name.data() + name.size()) return field;
  throw Error(ErrorCode::kInvalid,
              fmt::format("slices: there is no field \"{}\". There are {}", name,
                          columns.empty() ? "the numbers of the data" : columns));
}

std::vector<std::uint64_t> keys_of(const Dataset& data, std::uint32_t field) {
  std::vector<std::uint64_t> keys(data.rows(), kNone);
  for (std::size_t r = 0; r < data.rows(); ++r) {
    for (std::uint64_t e = data.row_begin[r]; e < data.row_begin[r + 1]; ++e) {
      if (data.fields[e] != field) continue;
      keys[r] = data.ids[e];
      break;
    }
  }
  return keys;
}

std::vector<Slice> evaluate_slices(std::span<const float> scores, std::span<const float> labels,
                                   std::span<const std::uint64_t> keys, const Dataset& names,
                                   const EvaluateOptions& options, std::size_t most) {
  std::map<std::uint64_t, std::vector<std::size_t>> groups;
  for (std::size_t r = 0; r < keys.size(); ++r) groups[keys[r]].push_back(r);
  std::vector<std::pair<std::uint64_t, std::vector<std::size_t>>> largest(groups.begin(),
                                                                          groups.end());
  std::stable_sort(largest.begin(), largest.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  largest.resize(std::min(most, largest.size()));
  std::vector<Slice> slices;
  for (const auto& [key, rows] : largest) {
    std::vector<float> s;
    std::vector<float> l;
    std::vector<float> w;
    for (const std::size_t r : rows) {
      s.push_back(scores[r]);
      l.push_back(labels[r]);
      if (!options.weights.empty()) w.push_back(options.weights[r]);
    }
    slices.push_back({text_of(key, names), evaluate(s, l, {.loss = options.loss, .weights = w})});
  }
  return slices;
}

}  // namespace motley::wide
