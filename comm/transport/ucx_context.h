// comm/transport/ucx_context.h: UCX as we set it up. For ucx_worker.cc only: it shows UCX's types.
#pragma once

#include <ucp/api/ucp.h>

#include <optional>
#include <string>

#include "comm/transport/ucx_worker.h"

namespace motley {

// Throws kUnavailable, saying what UCX could not do, unless `status` is UCS_OK.
void check_ucx(ucs_status_t status, const std::string& doing);

struct UcxContext {
  ucp_context_h handle = nullptr;                  // to be given back with ucp_cleanup()
  bool remote_memory = false;                      // see UcxWorker
  std::optional<ucs_memory_type_t> device_memory;  // as what UCX knows it, if it does
};
UcxContext make_ucx_context(const UcxNetwork& network);

// As what UCX knows the memory of this process's devices; nothing if it does not, or there is none.
std::optional<ucs_memory_type_t> device_memory_of(ucp_context_h context);

}  // namespace motley
