// comm/error.h: the one exception type of the project.
//
//   throw Error(ErrorCode::kMismatch, fmt::format("rank {} of {}: …", rank, size));
//
// A message has the form `who: what happened, with both numbers. what to do.`
// A code exists only where a caller would react to it; programmer errors are asserts.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace motley {

enum class ErrorCode {
  kInvalid,      // an argument, option or input file is wrong: the message says which and how
  kMismatch,     // ranks disagree on a call (count, dtype, op, order)
  kTimeout,      // a deadline passed; `ranks` were waited for
  kPeerLost,     // `ranks` died or cannot be reached
  kAborted,      // the call or the communicator was given up on purpose
  kUnavailable,  // this build or machine lacks what the call needs
  kIo,           // the operating system refused a file, socket or mapping
};

const char* name(ErrorCode code) noexcept;

// Where an error was raised; filled in by the default argument.
struct Where {
  const char* file = "";
  int line = 0;
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message,
        Where where = {__builtin_FILE(), __builtin_LINE()})
      : Error(code, message, std::vector<int>{}, where) {}
  Error(ErrorCode code, const std::string& message, std::vector<int> ranks,
        Where where = {__builtin_FILE(), __builtin_LINE()})
      : std::runtime_error(message), code_(code), ranks_(std::move(ranks)), where_(where) {}

  ErrorCode code() const noexcept { return code_; }
  // The ranks to blame, ascending; empty where no rank is.
  const std::vector<int>& ranks() const noexcept { return ranks_; }
  Where where() const noexcept { return where_; }

 private:
  ErrorCode code_;
  std::vector<int> ranks_;
  Where where_;
};

// Throws kIo with `doing`, errno's text and number: "open train.txt: No such file or directory
// (2)".
[[noreturn]] void throw_errno(const std::string& doing,
                              Where where = {__builtin_FILE(), __builtin_LINE()});

}  // namespace motley
