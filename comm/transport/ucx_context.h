// comm/transport/ucx_context.h: UCX as we set it up. For ucx_worker.cc only: it shows UCX's types.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "comm/transport/ucx_worker.h"

namespace motley {

// Throws kUnavailable, saying what UCX could not do, unless `status` is UCS_OK.
void check_ucx(ucs_status_t status, const std::string& doing);

struct UcxContext {
  ucp_context_h handle = nullptr;  // to be given back with ucp_cleanup()
  bool remote_memory = false;      // see UcxWorker
};
UcxContext make_ucx_context(const UcxNetwork& network);

}  // namespace motley
