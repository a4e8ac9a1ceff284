#include "runtime/synchronizer/arithmetic.h"

#include <fmt/format.h>

#include <cassert>
#include <cstring>

#include "comm/error.h"
#include "runtime/numeric/types.h"

namespace motley::runtime {
namespace {

// Calls body(Wide<T>…) for each element of `to` and of the others, and stores what it returns.
template <class Body, class... Views>
void for_each_element(View to, Body body, const Views&... others) {
  with_floating("synchronizer", to.dtype, [&]<class T>(T) {
    const auto out = to.as<T>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<T>(body(static_cast<Wide<T>>(out[i]),
                                   static_cast<Wide<T>>(others.template as<const T>()[i])...));
    }
  });
}

}  // namespace

ModelBuffer::ModelBuffer(ConstView model)
    : count_(model.count),
      dtype_(model.dtype),
      bytes_(model.bytes().begin(), model.bytes().end()) {}

ModelBuffer::ModelBuffer(std::size_t count, DType dtype)
    : count_(count), dtype_(dtype), bytes_(count * size_bytes(dtype)) {}

void copy(View to, ConstView from) noexcept {
  assert(to.count == from.count && to.dtype == from.dtype);
  if (to.count != 0) std::memcpy(to.data, from.data, to.size_bytes());
}

void set_zero(View data) noexcept {
  if (data.count != 0) std::memset(data.data, 0, data.size_bytes());
}

void add_scaled(View to, ConstView x, double factor) {
  for_each_element(
      to, [factor](auto sum, auto term) { return sum + static_cast<decltype(sum)>(factor) * term; },
      x);
}

void add_change(View to, ConstView after, ConstView before) {
  for_each_element(
      to, [](auto sum, auto now, auto then) { return sum + (now - then); }, after, before);
}

void halve_sum(View to, ConstView x) {
  for_each_element(
      to, [](auto a, auto b) { return (a + b) / 2; }, x);
}

void check_model(const char* method, ConstView model, const ModelBuffer* begun) {
  if (model.memory == Memory::kDevice || !is_floating(model.dtype)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("{}: the model is of {} in {} memory. This method adds up changes on "
                            "the host: pass floats in host memory.",
                            method, name(model.dtype),
                            model.memory == Memory::kDevice ? "device" : "host"));
  }
  if (begun == nullptr) return;
  if (begun->view().data == nullptr && model.count != 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("{}: average() before begin(). Call begin() with the model that all "
                            "workers start from.",
                            method));
  }
  if (begun->count() == model.count && begun->view().dtype == model.dtype) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("{}: {} {} here, but training began with {} {}. Pass the same model at "
                          "every step.",
                          method, model.count, name(model.dtype), begun->count(),
                          name(begun->view().dtype)));
}

}  // namespace motley::runtime
