// Whether UCX knows device memory. Alone in its file, so that tests can put another in its place.
#include <ucp/api/ucp.h>

#include "comm/device.h"
#include "comm/transport/ucx_context.h"

namespace motley {

std::optional<ucs_memory_type_t> device_memory_of(ucp_context_h context) {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  check_ucx(ucp_context_query(context, &attributes), "ask for the memories that it knows");
  const bool known = (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
  if (!known || device_count() == 0) return std::nullopt;
  return UCS_MEMORY_TYPE_CUDA;
}

}  // namespace motley
