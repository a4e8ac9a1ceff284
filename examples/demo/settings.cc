#include "examples/demo/settings.h"

#include <algorithm>
#include <utility>

#include "wide/reader.h"

namespace demo {
namespace {

using motley::wide::Dataset;

constexpr std::size_t kTestEvery = 5;

void append_row(Dataset& to, const Dataset& from, std::size_t row) {
  const auto begin = static_cast<std::ptrdiff_t>(from.row_begin[row]);
  const auto end = static_cast<std::ptrdiff_t>(from.row_begin[row + 1]);
  to.labels.push_back(from.labels[row]);
  to.ids.insert(to.ids.end(), from.ids.begin() + begin, from.ids.begin() + end);
  to.values.insert(to.values.end(), from.values.begin() + begin, from.values.begin() + end);
  if (!from.fields.empty()) {
    to.fields.insert(to.fields.end(), from.fields.begin() + begin, from.fields.begin() + end);
  }
  to.row_begin.push_back(to.ids.size());
}

}  // namespace

Data load(const Settings& settings) {
  Dataset all = motley::wide::read_file(settings.data);
  if (!settings.test.empty()) {
    return {.train = std::move(all), .test = motley::wide::read_file(settings.test)};
  }
  Data data;
  data.train.format = data.test.format = all.format;
  for (std::size_t row = 0; row < all.rows(); ++row) {
    append_row(row % kTestEvery == kTestEvery - 1 ? data.test : data.train, all, row);
  }
  return data;
}

std::size_t rows_per_step(const Settings& settings, std::size_t rows) {
  constexpr std::size_t kStepsPerEpoch = 16;
  if (settings.sync_rows != 0) return settings.sync_rows;
  const std::size_t steps = kStepsPerEpoch * static_cast<std::size_t>(settings.workers);
  return std::max<std::size_t>((rows + steps - 1) / steps, 1);
}

}  // namespace demo
