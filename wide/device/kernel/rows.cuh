// wide/device/kernel/rows.cuh: how a warp goes through the edges of a row, for linear models and
// FM. kQuads neighbouring lanes have the factors of an edge, four each; 0: there are none. Where k
// / 4 is no power of two, the last of them have none.
#pragma once

#include "wide/device/kernel/rules.cuh"
#include "wide/fm.h"
#include "wide/linear.h"
#include "wide/loss.h"

namespace motley::wide {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kLanesOfWarp;

template <int kQuads>
constexpr int kLanesOfEdge = kQuads == 0 ? 1 : kQuads;
template <int kQuads>
constexpr int kEdgesAtOnce = kLanesOfWarp / kLanesOfEdge<kQuads>;

using Machine = FactorizationMachine<Quad, 1>;

// What a lane has gathered, then what all have.
struct RowSum {
  float linear = 0;
  Machine::Sum factors{{Quad(0)}, {Quad(0)}};
};

__device__ inline float* linear_of(const DeviceState& s, std::uint32_t slot) {
  return s.linear + std::size_t{slot} * linear_stride(s.planes);
}
__device__ inline float* all_factors_of(const DeviceState& s, std::uint32_t slot) {
  return s.factors + std::size_t{slot} * s.width * static_cast<unsigned>(s.planes);
}
template <int kQuads>
__device__ bool has_factors(const DeviceState& s, int quad) {
  return kQuads > 0 && (kQuads <= 8 || 4 * static_cast<unsigned>(quad) < s.width);
}
// This lane's four, of those of a slot or a row at `all`.
template <int kQuads>
__device__ Quad load_quad(const DeviceState& s, const float* all, int quad) {
  return has_factors<kQuads>(s, quad) ? Quad::load(all + 4 * quad) : Quad(0.0f);
}

// The sums of all lanes come to all; returns the score but for the bias, in all lanes.
template <int kQuads>
__device__ float score_of_warp(RowSum& sum) {
  float score = sum.linear;
  float squares = total(sum.factors.squares[0]);
#pragma unroll
  for (int step = kLanesOfWarp / 2; step >= kLanesOfEdge<kQuads>; step /= 2) {
    score = summed(score, step);
    if constexpr (kQuads > 0) {
      squares = summed(squares, step);
      sum.factors.factors[0] = summed(sum.factors.factors[0], step);
    }
  }
  if constexpr (kQuads > 0) {
    sum.factors.squares[0] = Quad(make_float4(squares, 0, 0, 0));
    score += Machine{}.score(sum.factors);
#pragma unroll
    for (int step = kQuads / 2; step >= 1; step /= 2) score = summed(score, step);
  }
  return score;
}

// What a row has beside its edges. Lanes read those of neighbouring rows at once, for the warp to
// take the rows one after the other.
constexpr int kRowsOfWarp = 16;
struct RowHead {
  std::uint32_t begin = 0, end = 0;  // of its edges
  float label = 0, weight = 1;
  float value = 0;  // of all its edges, if the batch is uniform
};
__device__ inline RowHead head_at(const BatchArrays& b, std::uint32_t row) {
  RowHead head;
  head.begin = b.row_begin[row];
  head.end = b.row_begin[row + 1];
  head.label = b.labels[row];
  if (b.weights != nullptr) head.weight = b.weights[row];
  if (b.uniform) head.value = b.values[row];
  return head;
}
__device__ inline RowHead head_of_lane(const BatchArrays& b, const RowHead& mine, int lane) {
  RowHead head;
  head.begin = __shfl_sync(kAllLanes, mine.begin, lane);
  head.end = __shfl_sync(kAllLanes, mine.end, lane);
  head.label = __shfl_sync(kAllLanes, mine.label, lane);
  if (b.weights != nullptr) head.weight = __shfl_sync(kAllLanes, mine.weight, lane);
  if (b.uniform) head.value = __shfl_sync(kAllLanes, mine.value, lane);
  return head;
}
// Calls body(head, row, i) for rows [base, base + kRowsOfWarp) that are below `end`, with the whole
// warp for each; i counts them. Returns the head of this lane's row, or of none.
template <class Body>
__device__ RowHead for_rows(const BatchArrays& b, std::uint32_t base, std::uint32_t end,
                            const Body& body) {
  const std::uint32_t own = base + threadIdx.x % kLanesOfWarp;
  RowHead mine;
  if (threadIdx.x % kLanesOfWarp < kRowsOfWarp && own < end) mine = head_at(b, own);
  for (int i = 0; i < kRowsOfWarp && base + static_cast<unsigned>(i) < end; ++i)
    body(head_of_lane(b, mine, i), base + static_cast<unsigned>(i), i);
  return mine;
}
__device__ inline float value_of(const BatchArrays& b, const RowHead& head, std::uint32_t edge) {
  return b.uniform ? head.value : b.values[edge];
}
__device__ inline float slope_of_row(Loss loss, const RowHead& head, float score) {
  return head.weight * slope_of(loss, score, head.label);
}
__device__ inline double loss_of_row(Loss loss, const RowHead& head, float score) {
  return static_cast<double>(head.weight) * loss_of(loss, static_cast<double>(score), head.label);
}

// Scores all rows of the batch: body(row, head, score) by one lane for each; where `sums` is not
// null, a row's sums of factors go there.
template <int kQuads, class Body>
__device__ void score_rows(const DeviceState& state, const BatchArrays& b, float* sums,
                           const Body& body) {
  constexpr int kLanes = kLanesOfEdge<kQuads>;
  const int lane = static_cast<int>(threadIdx.x % kLanesOfWarp), quad = lane % kLanes;
  const float bias = state.shared[Layout::kBias];
  const std::uint32_t warp = blockIdx.x * kWarps + threadIdx.x / kLanesOfWarp;
  for (std::uint32_t base = warp * kRowsOfWarp; base < b.rows;
       base += gridDim.x * kWarps * kRowsOfWarp) {
    float own = 0;  // the score of this lane's row
    const auto score_row = [&](const RowHead& head, std::uint32_t row, int i) {
      RowSum sum;
      for (std::uint32_t e = head.begin + static_cast<unsigned>(lane / kLanes); e < head.end;
           e += kEdgesAtOnce<kQuads>) {
        const std::uint32_t slot = b.slots[e];
        const float x = value_of(b, head, e);
        One linear(sum.linear);
        if (quad == 0) Linear<One>::gather(linear, One::load(linear_of(state, slot)), One(x));
        sum.linear = linear.value;
        if constexpr (kQuads > 0) {
          const Quad v = load_quad<kQuads>(state, all_factors_of(state, slot), quad);
          Machine{}.gather(sum.factors, &v.v.x, 0, x);
        }
      }
      const float score = bias + score_of_warp<kQuads>(sum);
      if (lane == i) own = score;
      if constexpr (kQuads > 0) {
        float* const to = sums + std::size_t{row} * state.width + 4 * quad;
        if (lane < kQuads && has_factors<kQuads>(state, quad) && sums != nullptr)
          sum.factors.factors[0].store(to);
      }
    };
    const RowHead head = for_rows(b, base, b.rows, score_row);
    const std::uint32_t row = base + static_cast<unsigned>(lane);
    if (lane < kRowsOfWarp && row < b.rows) body(row, head, own);
  }
}

// What the edges of a row are sent: its slope, and what all of them count if the batch is uniform.
__device__ inline void send(const DeviceSums& sums, std::uint32_t row, float slope,
                            const RowHead& head) {
  reinterpret_cast<float2*>(sums.slopes)[row] = make_float2(slope, head.value);
}
struct Sent {
  float slope;
  float x;
};
__device__ inline Sent sent_to(const DeviceSums& sums, const BatchArrays& b, std::uint32_t edge,
                               std::uint32_t row) {
  const float2 sent = reinterpret_cast<const float2*>(sums.slopes)[row];
  return {sent.x, b.edge_value == nullptr ? sent.y : b.edge_value[edge]};
}

// Calls body(std::integral_constant<int, kQuads>) for the model's width.
template <class Body, int kQuads = kLanesOfWarp>
void for_quads(const DeviceState& state, const Body& body) {
  if constexpr (kQuads > 0) {
    if (state.width <= 2 * kQuads) return for_quads<Body, kQuads / 2>(state, body);
  }
  body(std::integral_constant<int, kQuads>{});
}

}  // namespace motley::wide
