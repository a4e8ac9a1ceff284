#include "moe/rows.h"

#include <algorithm>
#include <cassert>
#include <vector>

namespace motley::moe {
namespace {

// Rows or tokens of one task.
constexpr std::size_t kTaskRows = 128;

// Runs body(i) for i in [0, count), in tasks of many.
template <class Body>
void each(Workers& workers, std::size_t count, const Body& body) {
  workers.run((count + kTaskRows - 1) / kTaskRows, [&](std::size_t task) {
    const std::size_t end = std::min(count, (task + 1) * kTaskRows);
    for (std::size_t i = task * kTaskRows; i < end; ++i) body(i);
  });
}

// out += weight * in, of one row.
void add_weighted(float* __restrict__ out, const float* __restrict__ in, float weight,
                  std::size_t columns) {
  for (std::size_t c = 0; c < columns; ++c) out[c] += weight * in[c];
}

// The rows of a choice: its shards.
std::span<const std::int64_t> rows_of(const RowDecoding& d, std::size_t choice) {
  return d.row.subspan(choice * d.shards, d.shards);
}

bool is_served(std::span<const std::int64_t> rows) { return !rows.empty() && rows[0] >= 0; }

// The sum of a choice's shards: the one there is, or `sum` [columns], which it is made in.
const float* shard_sum(const RowDecoding& d, std::span<const std::int64_t> rows, float* sum) {
  const auto at = [&](std::int64_t row) {
    return d.in.data() + static_cast<std::size_t>(row) * d.columns;
  };
  if (rows.size() == 1 || rows[1] < 0) return at(rows[0]);
  std::copy_n(at(rows[0]), d.columns, sum);
  for (std::size_t s = 1; s < rows.size() && rows[s] >= 0; ++s) {
    add_weighted(sum, at(rows[s]), 1, d.columns);
  }
  return sum;
}

}  // namespace

void encode_rows(const RowEncoding& e, Workers& workers) {
  assert(e.out.size() == e.index.size() * e.columns);
  each(workers, e.index.size(), [&](std::size_t i) {
    const float* const in = e.in.data() + static_cast<std::size_t>(e.index[i]) * e.columns;
    float* const out = e.out.data() + i * e.columns;
    if (e.scale.empty()) {
      std::copy_n(in, e.columns, out);
      return;
    }
    const float scale = e.scale[i];
    for (std::size_t c = 0; c < e.columns; ++c) out[c] = scale * in[c];
  });
}

void decode_rows(const RowDecoding& d, Workers& workers) {
  const std::size_t tokens = d.out.size() / d.columns;
  assert(d.row.size() == tokens * d.terms * d.shards);
  workers.run((tokens + kTaskRows - 1) / kTaskRows, [&](std::size_t task) {
    std::vector<float> sum(d.shards > 1 ? d.columns : 0);
    const std::size_t end = std::min(tokens, (task + 1) * kTaskRows);
    for (std::size_t t = task * kTaskRows; t < end; ++t) {
      float* const out = d.out.data() + t * d.columns;
      std::fill_n(out, d.columns, 0.0f);
      for (std::size_t j = 0; j < d.terms; ++j) {
        const auto rows = rows_of(d, t * d.terms + j);
        if (!is_served(rows)) continue;
        const float weight = d.weight.empty() ? 1.0f : d.weight[t * d.terms + j];
        add_weighted(out, shard_sum(d, rows, sum.data()), weight, d.columns);
      }
    }
  });
}

void decode_weight_gradient(const RowDecoding& d, std::span<const float> dy,
                            std::span<float> dweight, Workers& workers) {
  const std::size_t choices = dweight.size();
  assert(d.row.size() == choices * d.shards);
  workers.run((choices + kTaskRows - 1) / kTaskRows, [&](std::size_t task) {
    std::vector<float> sum(d.shards > 1 ? d.columns : 0);
    const std::size_t end = std::min(choices, (task + 1) * kTaskRows);
    for (std::size_t i = task * kTaskRows; i < end; ++i) {
      dweight[i] = 0;
      const auto rows = rows_of(d, i);
      if (!is_served(rows)) continue;
      const float* const output = shard_sum(d, rows, sum.data());
      const float* const gradient = dy.data() + i / d.terms * d.columns;
      // Eight sums, so that they can be vectors; the same ones on every processor.
      float parts[8] = {};
      std::size_t c = 0;
      for (; c + 8 <= d.columns; c += 8) {
        for (std::size_t l = 0; l < 8; ++l) parts[l] += gradient[c + l] * output[c + l];
      }
      for (std::size_t l = 0; c + l < d.columns; ++l) parts[l] += gradient[c + l] * output[c + l];
      dweight[i] = ((parts[0] + parts[4]) + (parts[1] + parts[5])) +
                   ((parts[2] + parts[6]) + (parts[3] + parts[7]));
    }
  });
}

}  // namespace motley::moe
