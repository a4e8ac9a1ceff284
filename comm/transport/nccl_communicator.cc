#include "comm/transport/nccl_communicator.h"

#include <fmt/format.h>

#include <cstring>

namespace motley {
namespace {

constexpr Duration kFarewell = seconds(2);     // for the last bytes to leave
constexpr Duration kLook = seconds(0.000'02);  // between looks at what is on its way

// What a caller can do about it. NCCL does not say which rank it was.
ErrorCode code_of(ncclResult_t status) {
  switch (status) {
    case ncclRemoteError:
      return ErrorCode::kPeerLost;
    case ncclInvalidUsage:
    case ncclInvalidArgument:
      return ErrorCode::kInvalid;
    default:
      return ErrorCode::kIo;
  }
}

// NCCL's text, its number and what it adds.
std::string text_of(ncclResult_t status, ncclComm_t comm) {
  const char* const more = ncclGetLastError(comm);
  const bool has_more = more != nullptr && *more != '\0';
  return fmt::format("{} ({}){}{}", ncclGetErrorString(status), static_cast<int>(status),
                     has_more ? ": " : "", has_more ? more : "");
}

}  // namespace

NcclId new_nccl_id() {
  ncclUniqueId made;
  const ncclResult_t status = ncclGetUniqueId(&made);
  if (status != ncclSuccess) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("NCCL: {} while making an id. Check the driver, or use "
                            "MOTLEY_NCCL=off.",
                            text_of(status, nullptr)));
  }
  NcclId id;
  static_assert(sizeof(made) == sizeof(id));
  std::memcpy(id.data(), &made, sizeof(made));
  return id;
}

NcclCommunicator::NcclCommunicator(const Group& group, int rank, const NcclId& id, Clock& clock)
    : group_(group), clock_(clock) {
  ncclUniqueId given;
  std::memcpy(&given, id.data(), sizeof(given));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t status =
      ncclCommInitRankConfig(&handle_, group.size(), given, group.index_of(rank), &config);
  if (status == ncclSuccess || status == ncclInProgress) return;
  const std::string text = text_of(status, nullptr);
  if (handle_ != nullptr) (void)ncclCommAbort(handle_);
  throw Error(ErrorCode::kUnavailable,
              fmt::format("NCCL: {} while connecting {} ranks. Check the driver and that each rank "
                          "has a device of its own, or use MOTLEY_NCCL=off.",
                          text, group.size()));
}

NcclCommunicator::~NcclCommunicator() {
  if (aborted_) return;
  const TimePoint patience = clock_.now() + kFarewell;
  ncclResult_t status = ncclCommFinalize(handle_);
  while (status == ncclInProgress && clock_.now() < patience) {
    clock_.sleep_until(clock_.now() + kLook);
    if (ncclCommGetAsyncError(handle_, &status) != ncclSuccess) break;
  }
  if (status == ncclSuccess && ncclCommDestroy(handle_) == ncclSuccess) return;
  abort(Error(ErrorCode::kAborted, "it was destroyed"));
}

bool NcclCommunicator::settled() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t status = ncclCommGetAsyncError(handle_, &state);
  if (status != ncclSuccess) fail(status, "asking for errors");
  if (state == ncclInProgress) return false;
  if (state != ncclSuccess) fail(state, "running what it was asked for");
  return true;
}

void NcclCommunicator::settle() {
  while (!settled()) {
    const TimePoint now = clock_.now();
    if (now >= deadline_) {
      throw Error(ErrorCode::kTimeout,
                  "NCCL did not take the call in time. Check the members that are not in it.");
    }
    clock_.sleep_until(now + kLook);
  }
}

void NcclCommunicator::together(const std::function<void()>& post) {
  check(ncclGroupStart(), "beginning a group");
  try {
    post();
  } catch (...) {
    (void)ncclGroupEnd();
    throw;
  }
  check(ncclGroupEnd(), "starting a group");
}

void NcclCommunicator::check(ncclResult_t status, const char* doing) {
  if (status == ncclSuccess) return;
  if (status != ncclInProgress) fail(status, doing);
}

void NcclCommunicator::fail(ncclResult_t status, const char* doing) {
  const Error error(code_of(status),
                    fmt::format("NCCL: {} while {} among {} ranks. Its communicator is given up.",
                                text_of(status, handle_), doing, group_.size()));
  if (!broken_) broken_ = error;
  throw error;
}

void NcclCommunicator::abort(const Error& why) noexcept {
  if (aborted_) return;
  aborted_ = why;
  (void)ncclCommAbort(handle_);
  handle_ = nullptr;
}

}  // namespace motley
