// wide/kernel/job_row.h: a row of a job: its edges, and where their weights are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wide/kernel/kernels.h"

namespace motley::wide {

template <bool kFields>
struct JobRow {
  const std::uint32_t* slots;
  const float* values;
  const std::uint16_t* fields;
  std::size_t n;
  std::size_t value_stride;  // 0: one value for all

  [[gnu::always_inline]] JobRow(const Job& job, std::uint64_t row)
      : slots(job.slots + job.row_begin[row]),
        values(job.values + (job.uniform ? row : job.row_begin[row])),
        fields(job.fields + (kFields ? job.row_begin[row] : 0)),
        n(job.row_begin[row + 1] - job.row_begin[row]),
        value_stride(job.uniform ? 0 : 1) {}
  [[gnu::always_inline]] float value(std::size_t i) const { return values[i * value_stride]; }
  [[gnu::always_inline]] int field(std::size_t i) const {
    if constexpr (kFields) return fields[i];
    return 0;
  }
};

}  // namespace motley::wide
