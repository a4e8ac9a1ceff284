#include "comm/error.h"

#include <cerrno>
#include <system_error>

namespace motley {

const char* name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalid:
      return "invalid";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kPeerLost:
      return "peer lost";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kIo:
      return "i/o";
  }
  return "unknown";
}

void throw_errno(const std::string& doing, Where where) {
  const int number = errno;
  throw Error(
      ErrorCode::kIo,
      doing + ": " + std::generic_category().message(number) + " (" + std::to_string(number) + ")",
      where);
}

}  // namespace motley
