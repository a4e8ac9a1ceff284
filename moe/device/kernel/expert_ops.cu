// Device half of expert_ops.h. Memory-bound: each number is read and written once.
#include <cmath>

#include "comm/launch.cuh"
#include "moe/device/expert_ops.h"

namespace motley::moe {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kMostBlocks = 65535;  // of a grid's second dimension

template <class T>
__device__ float wide(T x) {
  return static_cast<float>(x);
}

struct Activated {
  float value;
  float slope;
};

__device__ Activated activated(float x, Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return {x > 0 ? x : 0.0f, x > 0 ? 1.0f : 0.0f};
    case Activation::kGelu: {
      const float share = 0.5f * (1 + std::erf(x * 0.70710678f));
      return {x * share, share + x * 0.39894228f * std::exp(-0.5f * x * x)};
    }
    case Activation::kSilu:
      break;
  }
  const float share = 1 / (1 + std::exp(-x));
  return {x * share, share * (1 + x * (1 - share))};
}

// Calls body(segment, i, column) for all numbers i of the rows of this block's segments.
template <class Body>
__device__ void each_number(const DeviceSegments& segments, std::size_t columns, const Body& body) {
  for (std::size_t s = blockIdx.y; s < segments.count; s += gridDim.y) {
    const DeviceSegment segment = segments.data[s];
    const std::size_t count = segment.rows * columns;
    const std::size_t stride = std::size_t{gridDim.x} * kThreads;
    for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride)
      body(segment, segment.first * columns + i, i % columns);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    activate_kernel(DeviceSegments segments, DeviceHidden h) {
  each_number(segments, h.columns, [&](const DeviceSegment& segment, std::size_t i, std::size_t c) {
    T& hidden = static_cast<T*>(h.hidden)[i];
    hidden = static_cast<T>(wide(hidden) + wide(static_cast<const T*>(segment.b1)[c]));
    float active = activated(wide(hidden), h.activation).value;
    if (h.partner != nullptr) {
      T& partner = static_cast<T*>(h.partner)[i];
      partner = static_cast<T>(wide(partner) + wide(static_cast<const T*>(segment.b3)[c]));
      active *= wide(partner);
    }
    static_cast<T*>(h.active)[i] = static_cast<T>(active);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    activation_gradient_kernel(DeviceSegments segments, DeviceHidden h) {
  each_number(segments, h.columns, [&](const DeviceSegment&, std::size_t i, std::size_t) {
    const Activated at = activated(wide(static_cast<const T*>(h.hidden)[i]), h.activation);
    T& dhidden = static_cast<T*>(h.dhidden)[i];
    const float dactive = wide(dhidden);
    float gradient = dactive * at.slope;
    if (h.partner != nullptr) {
      gradient *= wide(static_cast<const T*>(h.partner)[i]);
      static_cast<T*>(h.dpartner)[i] = static_cast<T>(dactive * at.value);
    }
    dhidden = static_cast<T>(gradient);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_output_bias_kernel(DeviceSegments segments, T* out, std::size_t columns) {
  each_number(segments, columns, [&](const DeviceSegment& segment, std::size_t i, std::size_t c) {
    if (segment.b2 == nullptr) return;
    out[i] = static_cast<T>(wide(out[i]) + wide(static_cast<const T*>(segment.b2)[c]));
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_columns_kernel(DeviceSegments segments, DeviceColumnSums sums) {
  for (std::size_t k = blockIdx.y; k < sums.count; k += gridDim.y) {
    const DeviceColumnSum one = sums.data[k];
    const std::size_t stride = std::size_t{gridDim.x} * kThreads;
    for (std::size_t c = std::size_t{blockIdx.x} * kThreads + threadIdx.x; c < one.columns;
         c += stride) {
      float sum = 0;
      for (std::size_t s = 0; s < segments.count && one.in != nullptr; ++s) {
        const DeviceSegment& segment = segments.data[s];
        if (segment.slot != one.slot) continue;
        const T* const in = static_cast<const T*>(one.in) + segment.first * one.columns + c;
        for (std::size_t r = 0; r < segment.rows; ++r) sum += wide(in[r * one.columns]);
      }
      static_cast<T*>(one.out)[c] = static_cast<T>(sum);
    }
  }
}

__global__ void __launch_bounds__(kThreads) clear_kernel(std::uint16_t* data, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride)
    data[i] = 0;
}

LaunchShape shape_of(std::size_t numbers, std::size_t groups) {
  const std::size_t most = groups < kMostBlocks ? groups : kMostBlocks;
  return {.grid = dim3(blocks_for(numbers, kThreads), static_cast<unsigned>(most)),
          .block = kThreads};
}

// Calls body.template operator()<T>() with the type of all elements.
template <class Body>
void dispatch(DType dtype, const Body& body) {
  if (dtype == DType::kFloat16) return body.template operator()<half>();
  if (dtype == DType::kBFloat16) return body.template operator()<bfloat16>();
  body.template operator()<float>();
}

}  // namespace

void activate_on_device(DType dtype, const DeviceSegments& segments, const DeviceHidden& hidden,
                        StreamRef stream) {
  if (segments.most_rows == 0) return;  // an empty grid is a launch error
  dispatch(dtype, [&]<class T>() {
    launch(activate_kernel<T>, shape_of(segments.most_rows * hidden.columns, segments.count),
           stream, segments, hidden);
  });
}

void activation_gradient_on_device(DType dtype, const DeviceSegments& segments,
                                   const DeviceHidden& hidden, StreamRef stream) {
  if (segments.most_rows == 0) return;
  dispatch(dtype, [&]<class T>() {
    launch(activation_gradient_kernel<T>,
           shape_of(segments.most_rows * hidden.columns, segments.count), stream, segments, hidden);
  });
}

void add_output_bias_on_device(DType dtype, const DeviceSegments& segments, void* out,
                               std::size_t columns, StreamRef stream) {
  if (segments.most_rows == 0) return;
  dispatch(dtype, [&]<class T>() {
    launch(add_output_bias_kernel<T>, shape_of(segments.most_rows * columns, segments.count),
           stream, segments, static_cast<T*>(out), columns);
  });
}

void sum_columns_on_device(DType dtype, const DeviceSegments& segments,
                           const DeviceColumnSums& sums, StreamRef stream) {
  if (sums.count == 0) return;
  dispatch(dtype, [&]<class T>() {
    launch(sum_columns_kernel<T>, shape_of(sums.most_columns, sums.count), stream, segments, sums);
  });
}

void clear_on_device(void* data, std::size_t size_bytes, StreamRef stream) {
  constexpr std::size_t kWord = sizeof(std::uint16_t);  // of which all elements are multiples
  if (size_bytes == 0) return;
  launch(clear_kernel, shape_of(size_bytes / kWord, 1), stream, static_cast<std::uint16_t*>(data),
         size_bytes / kWord);
}

}  // namespace motley::moe
