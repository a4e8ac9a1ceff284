// Stands in for ucx.cc in builds without UCX.
#include "comm/transport/factory.h"

namespace motley {

std::unique_ptr<Transport> make_ucx_transport(const TransportSetup&) {
  throw Error(ErrorCode::kUnavailable,
              "ucx: UCX is not in this build. Install libucx-dev and configure with "
              "-DMOTLEY_UCX=ON, or use transport \"shm\" if all ranks are on one host.");
}

}  // namespace motley
