#include "wide/dataset.h"

namespace motley::wide {

Dataset rows_of(const Dataset& data, std::span<const std::uint64_t> rows) {
  Dataset out;
  out.format = data.format;
  out.recipe = data.recipe;
  out.names = data.names;
  const auto append = [](auto& to, const auto& from, std::uint64_t begin, std::uint64_t end) {
    to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
              from.begin() + static_cast<std::ptrdiff_t>(end));
  };
  std::uint64_t entries = 0;
  for (const std::uint64_t row : rows) entries += data.row_begin[row + 1] - data.row_begin[row];
  out.row_begin.reserve(rows.size() + 1);
  out.labels.reserve(rows.size());
  out.ids.reserve(entries);
  if (!data.values.empty()) out.values.reserve(entries);
  if (!data.fields.empty()) out.fields.reserve(entries);
  for (const std::uint64_t row : rows) {
    const std::uint64_t begin = data.row_begin[row];
    const std::uint64_t end = data.row_begin[row + 1];
    out.labels.push_back(data.labels[row]);
    if (!data.weights.empty()) out.weights.push_back(data.weights[row]);
    append(out.ids, data.ids, begin, end);
    if (!data.values.empty()) append(out.values, data.values, begin, end);
    if (!data.fields.empty()) append(out.fields, data.fields, begin, end);
    out.row_begin.push_back(out.ids.size());
  }
  return out;
}

void append(Dataset& to, const Dataset& more) {
  const std::uint64_t before = to.ids.size();
  const auto add = [](auto& out, const auto& in) { out.insert(out.end(), in.begin(), in.end()); };
  add(to.labels, more.labels);
  add(to.weights, more.weights);
  add(to.ids, more.ids);
  if (!to.values.empty() || !more.values.empty()) {
    to.values.resize(before, 1.0f);  // as far as it has none
    add(to.values, more.values);
    to.values.resize(to.ids.size(), 1.0f);
  }
  add(to.fields, more.fields);
  for (std::size_t r = 1; r < more.row_begin.size(); ++r) {
    to.row_begin.push_back(before + more.row_begin[r]);
  }
}

}  // namespace motley::wide
