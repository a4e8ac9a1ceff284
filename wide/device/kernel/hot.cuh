// wide/device/kernel/hot.cuh: a block's copy of the hot slots in shared memory: their weights as
// they were when a tile began, and the sums of the tile's gradients, in replicas between which
// warps take turns, so that fewer add to one word at a time.
#pragma once

#include "wide/device/kernel/rows.cuh"
#include "wide/device/kernel/rules.cuh"

namespace motley::wide {

struct Hot {
  DeviceSums window;  // what the rows of a window sum up to, for owners; else null
  float* factors;     // [hot][width]
  float* linear;      // [hot]
  float* gradients;   // [replicas][hot][stride()]: of factors, then the linear one
  unsigned* counts;   // [hot]: edges of the tile
  float* bias;        // [2]: as it was, and its gradient
  float* pairs;       // [2][pairs]: the same of what an FwFM's samples share
  std::uint32_t hot, hottest, width, replicas;

  static std::size_t floats(const DeviceState& state, const FlowShape& shape) {
    const std::size_t width = state.width;
    const std::size_t window = shape.by_feature ? shape.step_rows * (width + 2) : 0;
    return window + shape.hot * (width + 2 + shape.replicas * (width + 1)) + 2 + 2 * state.pairs;
  }
  __device__ static Hot at(float* memory, const DeviceState& state, const FlowShape& shape) {
    const std::uint32_t width = state.width;
    Hot h;
    h.hot = shape.hot;
    h.hottest = shape.hottest < shape.hot ? shape.hottest : shape.hot;
    h.width = width;
    h.replicas = shape.replicas;
    if (shape.by_feature) {
      h.window.sums = memory;
      h.window.slopes = memory + std::size_t{shape.step_rows} * width;
      memory = h.window.slopes + 2 * std::size_t{shape.step_rows};
    }
    h.factors = memory;
    h.linear = h.factors + std::size_t{h.hot} * width;
    h.gradients = h.linear + h.hot;
    h.counts =
        reinterpret_cast<unsigned*>(h.gradients + std::size_t{h.replicas} * h.hot * h.stride());
    h.bias = reinterpret_cast<float*>(h.counts + h.hot);
    h.pairs = h.bias + 2;
    return h;
  }
  __device__ bool has_owners() const { return window.slopes != nullptr; }
  // Odd, so that neighbouring slots begin in different banks.
  __device__ std::uint32_t stride() const { return width + 1; }
  __device__ float* gradient_of(std::uint32_t replica, std::uint32_t slot) const {
    return gradients + (std::size_t{replica} * hot + slot) * stride();
  }
};

// Takes this thread's part of the factors of hot slots.
__device__ inline void take_factors(const Hot& h, const DeviceState& state) {
  const std::uint32_t quads = h.width / 4;
  for (std::uint32_t i = threadIdx.x; i < h.hot * quads; i += kThreads) {
    const float* const from = all_factors_of(state, i / quads) + 4 * (i % quads);
    Quad::load(from).store(h.factors + 4 * std::size_t{i});
  }
}

// Takes the linear weights of slots [0, slots) and what all samples share, and begins new sums of
// gradients. A barrier has to follow.
__device__ inline void take_hot(const Hot& h, const DeviceState& state, std::uint32_t slots) {
  for (std::uint32_t slot = threadIdx.x; slot < slots; slot += kThreads) {
    h.linear[slot] = linear_of(state, slot)[0];
    h.counts[slot] = 0;
  }
  for (std::uint32_t replica = 0; replica < h.replicas; ++replica) {
    float* const sums = h.gradient_of(replica, 0);
    for (std::uint32_t i = threadIdx.x; i < slots * h.stride(); i += kThreads) sums[i] = 0;
  }
  for (std::uint32_t i = threadIdx.x; i < state.pairs; i += kThreads) {
    h.pairs[i] = state.shared[Layout::kPairs + i];
    h.pairs[state.pairs + i] = 0;
  }
  if (threadIdx.x == 0) {
    h.bias[0] = state.shared[Layout::kBias];
    h.bias[1] = 0;
  }
}

__device__ inline void add_four(float* to, const Quad& x) {
  atomicAdd(to, x.v.x);
  atomicAdd(to + 1, x.v.y);
  atomicAdd(to + 2, x.v.z);
  atomicAdd(to + 3, x.v.w);
}
__device__ inline Quad sum_of_replicas(const Hot& h, std::uint32_t slot, std::uint32_t at) {
  Quad sum(0.0f);
  for (std::uint32_t replica = 0; replica < h.replicas; ++replica) {
    const float* const g = h.gradient_of(replica, slot) + at;
    sum = sum + Quad(make_float4(g[0], g[1], g[2], g[3]));
  }
  return sum;
}

// Updates by what has been summed up in `rows` rows what all samples share.
__device__ inline void step_all_share(const Hot& h, const DeviceJob& job, std::uint32_t rows) {
  const DeviceState& state = job.state;
  const auto step_one = [&](std::size_t at, float weight, float gradient) {
    One s[kMostPlanes];
    s[0] = One(weight);
    load_others(s, state.shared + at, state.shared_stride, state.planes);
    add_step(job.optimizer, s, state.shared + at, state.shared_stride, One(gradient), job.shared,
             1.0f);
  };
  for (std::uint32_t i = threadIdx.x; i < state.pairs; i += kThreads) {
    if (h.pairs[state.pairs + i] != 0)
      step_one(Layout::kPairs + i, h.pairs[i], h.pairs[state.pairs + i]);
  }
  if (threadIdx.x != 0) return;
  step_one(Layout::kBias, h.bias[0], h.bias[1]);
  atomicAdd(state.shared + Layout::kUpdates, static_cast<float>(rows));
}

// Updates slots [0, slots) and what all samples share by what has been summed up, the latter of
// `rows` rows, and takes the slots' factors as they are then; between two barriers.
__device__ inline void step_hot(const Hot& h, const DeviceJob& job, std::uint32_t slots,
                                std::uint32_t rows) {
  const DeviceState& state = job.state;
  const std::uint32_t quads = h.width / 4;
  for (std::uint32_t i = threadIdx.x; i < slots * quads; i += kThreads) {
    const std::uint32_t slot = i / quads, quad = i % quads;
    float* const at = all_factors_of(state, slot) + 4 * quad;
    float* const taken = h.factors + 4 * std::size_t{i};
    const Quad gradient = sum_of_replicas(h, slot, 4 * quad);
    // An FFM's slot leaves factors alone for fields that it did not meet.
    const bool leaves = state.is_ffm() && !job.complete && !(total(gradient * gradient) > 0);
    if (h.counts[slot] == 0 || leaves) {
      Quad::load(at).store(taken);
      continue;
    }
    Quad s[kMostPlanes];
    s[0] = Quad::load(taken);
    load_others(s, at, h.width, state.planes);
    add_step(job.optimizer, s, at, h.width, gradient, job.factors,
             static_cast<float>(h.counts[slot]))
        .store(taken);
  }
  for (std::uint32_t slot = threadIdx.x; slot < slots; slot += kThreads) {
    if (h.counts[slot] == 0) continue;
    float gradient = 0;
    for (std::uint32_t replica = 0; replica < h.replicas; ++replica)
      gradient += h.gradient_of(replica, slot)[h.width];
    One s[kMostPlanes];
    load_linear(s, linear_of(state, slot), state.planes);
    add_linear_step(job.optimizer, s, linear_of(state, slot), gradient, job.linear,
                    static_cast<float>(h.counts[slot]));
  }
  step_all_share(h, job, rows);
}

// Slots that step `step`, counted from 1, updates: every step the hottest, every other step twice
// as many, and so on, so that slots have about as many edges between two updates.
__device__ inline std::uint32_t slots_of_step(const Hot& h, std::uint32_t step) {
  std::uint32_t slots = h.hottest;
  for (; step % 2 == 0 && slots < h.hot; step /= 2) slots *= 2;
  return slots < h.hot ? slots : h.hot;
}

// Adam's steps depend on how many updates there were: here one for every step of the hottest.
__device__ inline DeviceJob job_now(const DeviceJob& job, const FlowShape& shape) {
  DeviceJob now = job;
  if (job.optimizer != Optimizer::kAdam) return now;
  const float rows = job.state.shared[Layout::kUpdates];
  const float t = 1 + floorf(rows / static_cast<float>(shape.step_rows));
  for (Rates* const rates : {&now.linear, &now.factors, &now.shared})
    *rates = of_step<Adam>(*rates, t);
  return now;
}

// Goes through a tile's rows: body(job, begin, end) for those between two steps of the hottest
// slots, with all threads; it ends with a barrier.
template <class Body>
__device__ void learn_tile(const Hot& h, const DeviceJob& job, const FlowShape& shape,
                           std::uint32_t rows, std::uint32_t tile, const Body& body) {
  const std::uint32_t begin = tile * shape.tile_rows;
  const std::uint32_t end = rows - begin < shape.tile_rows ? rows : begin + shape.tile_rows;
  std::uint32_t slots = h.hot, steps = 0;
  take_factors(h, job.state);
  for (std::uint32_t from = begin; from < end;) {
    const std::uint32_t to = end - from <= shape.step_rows ? end : from + shape.step_rows;
    take_hot(h, job.state, slots);
    const DeviceJob now = job_now(job, shape);
    __syncthreads();
    body(now, from, to);
    ++steps;
    slots = to == end ? h.hot : slots_of_step(h, steps);
    step_hot(h, now, slots, to - from);
    __syncthreads();
    from = to;
  }
}

}  // namespace motley::wide
