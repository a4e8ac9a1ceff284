// comm/transport/nccl.h in a build without NCCL.
#include "comm/error.h"
#include "comm/transport/nccl.h"

namespace motley {
namespace {

[[noreturn]] void unavailable() {
  throw Error(
      ErrorCode::kUnavailable,
      "NCCL is not in this build. Configure with -DMOTLEY_NCCL=ON, or use MOTLEY_NCCL=off.");
}

}  // namespace

NcclId new_nccl_id() { unavailable(); }
std::unique_ptr<Nccl> make_nccl(const NcclSetup&) { unavailable(); }

}  // namespace motley
