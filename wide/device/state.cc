// What kernels.h says of states, on the host.
#include "wide/device/kernels.h"

namespace motley::wide {

DeviceState state_at(float* state, const Layout& layout) noexcept {
  return {.shared = state,
          .linear = state + layout.linear_begin(),
          .factors = state + layout.factors_begin(),
          .slots = static_cast<std::uint32_t>(layout.slots),
          .shared_stride = static_cast<std::uint32_t>(layout.shared),
          .width = static_cast<std::uint32_t>(layout.width),
          .fields = static_cast<std::uint32_t>(layout.fields),
          .planes = static_cast<int>(layout.planes)};
}

std::size_t sum_floats(const DeviceState& state) noexcept {
  return state.fields > 0 ? std::size_t{4} * state.fields * state.fields : state.width;
}

}  // namespace motley::wide
