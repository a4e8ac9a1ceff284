// UCX's device memory where devices are emulated: the host's, which every UCX knows.
#include "comm/device.h"
#include "comm/transport/ucx_context.h"

namespace motley {

std::optional<ucs_memory_type_t> device_memory_of(ucp_context_h) {
  if (device_count() == 0) return std::nullopt;
  return UCS_MEMORY_TYPE_HOST;
}

}  // namespace motley
