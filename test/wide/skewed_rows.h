// test/wide/skewed_rows.h: rows whose features are as unequal as those of clicks: in each field a
// few are in most rows, and most are in few.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>

#include "wide/dataset.h"

namespace motley::wide::test {

struct SkewedRows {
  std::size_t rows = 200;
  unsigned fields = 5;
  unsigned features = 30;  // of the first field
  double growth = 1;       // of that from field to field
  double skew = 3;         // 1: all alike; 3: the top eighth of a field has half of the entries
  bool complete = true;    // else fields have 0, 1 or 2 features in a row
  bool valued = false;     // else all values of a row are 1
  // No feature is in two rows.
  bool disjoint = false;
  std::uint64_t seed = 1;
};

inline Dataset skewed_rows(const SkewedRows& s) {
  std::mt19937_64 random(s.seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  Dataset data;
  data.format = Format::kLibffm;
  for (std::size_t r = 0; r < s.rows; ++r) {
    int sum = 0;
    for (unsigned f = 0; f < s.fields; ++f) {
      const unsigned many = s.complete ? 1 : static_cast<unsigned>(random() % 3);
      for (unsigned i = 0; i < many; ++i) {
        const double of_field = static_cast<double>(s.features) * std::pow(s.growth, f);
        const auto rank = static_cast<std::uint32_t>(std::pow(uniform(), s.skew) * of_field);
        const std::uint32_t in_field = s.disjoint ? static_cast<std::uint32_t>(r) : rank;
        const std::uint32_t id = (in_field * s.fields + f) * 2 + i;
        sum += static_cast<int>(id % 7) - 3;
        data.ids.push_back(id);
        data.fields.push_back(f);
        data.values.push_back(s.valued && random() % 2 == 0 ? 0.5f : 1.0f);
      }
    }
    data.labels.push_back((sum > 0) != (random() % 10 == 0) ? 1.0f : 0.0f);
    data.row_begin.push_back(data.ids.size());
  }
  return data;
}

}  // namespace motley::wide::test
