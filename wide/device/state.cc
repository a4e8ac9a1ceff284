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
          .quads = static_cast<std::uint32_t>(layout.block / 4),
          .pairs = static_cast<std::uint32_t>(layout.pairs),
          .planes = static_cast<int>(layout.planes)};
}

std::size_t sum_floats(const DeviceState& state) noexcept {
  if (state.is_ffm()) return std::size_t{4} * state.fields * state.quads_of_fields();
  return std::size_t{state.fields > 0 ? state.fields : 1} * state.width;
}

}  // namespace motley::wide
