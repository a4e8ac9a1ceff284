// wide/device/kernel/flow_row.cuh: the row that a block of the flow has, for models that look at
// fields: its first edges lie in shared memory, as many threads ask for each; and its linear
// weights.
#pragma once

#include "wide/device/kernel/block_rows.cuh"
#include "wide/device/kernel/hot.cuh"

namespace motley::wide {

class FlowRow {
 public:
  static constexpr std::uint32_t kNear = 128;
  __host__ __device__ static constexpr std::size_t floats() {
    return 3 * kNear + kRowsOfWarp * sizeof(RowHead) / sizeof(float);
  }

  __device__ FlowRow(const DeviceJob& job, const BatchArrays& b, const Hot& hot, float* memory)
      : job_(job),
        b_(b),
        hot_(hot),
        slots_(reinterpret_cast<std::uint32_t*>(memory)),
        fields_(slots_ + kNear),
        values_(memory + 2 * kNear),
        heads_(reinterpret_cast<RowHead*>(memory + 3 * kNear)) {}

  // Calls body(head) for rows [begin, end), with the whole block for each; it ends with a barrier.
  template <class Body>
  __device__ void for_rows_of_block(std::uint32_t begin, std::uint32_t end,
                                    const Body& body) const {
    for (std::uint32_t base = begin; base < end; base += kRowsOfWarp) {
      const std::uint32_t own = base + threadIdx.x;
      if (threadIdx.x < kRowsOfWarp && own < end) heads_[threadIdx.x] = head_at(b_, own);
      __syncthreads();
      for (std::uint32_t i = 0; i < kRowsOfWarp && base + i < end; ++i) {
        const RowHead head = heads_[i];
        body(head);
      }
    }
  }

  // A barrier has to follow.
  __device__ void bring_near(const RowHead& head) const {
    for (std::uint32_t i = threadIdx.x; i < kNear && head.begin + i < head.end; i += kThreads) {
      slots_[i] = b_.slots[head.begin + i];
      fields_[i] = b_.fields[head.begin + i];
      values_[i] = value_of(b_, head, head.begin + i);
    }
  }
  // The row is near. A barrier has to follow.
  __device__ void find_fields(const FieldBegins& of, const RowHead& head) const {
    wide::find_fields(of, head, [&](std::uint32_t e) { return field_of(head, e); });
  }
  __device__ std::uint32_t slot_of(const RowHead& head, std::uint32_t e) const {
    return e - head.begin < kNear ? slots_[e - head.begin] : b_.slots[e];
  }
  __device__ std::uint32_t field_of(const RowHead& head, std::uint32_t e) const {
    return e - head.begin < kNear ? fields_[e - head.begin] : b_.fields[e];
  }
  __device__ float x_of(const RowHead& head, std::uint32_t e) const {
    return e - head.begin < kNear ? values_[e - head.begin] : value_of(b_, head, e);
  }

  // What the edges of this thread bring to the score; `linear` has the weight of the last one.
  __device__ float gather_linear(const RowHead& head, One (&linear)[kMostPlanes]) const {
    float part = 0;
    for (std::uint32_t e = head.begin + threadIdx.x; e < head.end; e += kThreads) {
      load_weight(linear, slot_of(head, e));
      part += linear[0].value * x_of(head, e);
    }
    return part;
  }
  __device__ void scatter_linear(const RowHead& head, One (&linear)[kMostPlanes],
                                 float slope) const {
    for (std::uint32_t e = head.begin + threadIdx.x; e < head.end; e += kThreads) {
      // Of up to 256 features each thread has its own still.
      if (head.end - head.begin > kThreads) load_weight(linear, slot_of(head, e));
      scatter_weight(linear, slot_of(head, e), slope * x_of(head, e));
    }
  }

 private:
  __device__ void load_weight(One (&linear)[kMostPlanes], std::uint32_t slot) const {
    if (slot < hot_.hot) {
      linear[0] = One(hot_.linear[slot]);
    } else {
      load_linear(linear, linear_of(job_.state, slot), job_.state.planes);
    }
  }
  __device__ void scatter_weight(One (&linear)[kMostPlanes], std::uint32_t slot,
                                 float gradient) const {
    if (slot < hot_.hot) {
      atomicAdd(hot_.gradient_of(0, slot) + hot_.width, gradient);
      atomicAdd(hot_.counts + slot, 1u);
      return;
    }
    add_linear_step(job_.optimizer, linear, linear_of(job_.state, slot), gradient, job_.linear,
                    1.0f);
  }

  const DeviceJob& job_;
  const BatchArrays& b_;
  const Hot& hot_;
  std::uint32_t* slots_;   // [kNear]
  std::uint32_t* fields_;  // [kNear]
  float* values_;          // [kNear]
  RowHead* heads_;         // [kRowsOfWarp]
};

}  // namespace motley::wide
