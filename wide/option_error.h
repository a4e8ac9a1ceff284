// wide/option_error.h: an option out of its range, named apart, as a program may call it otherwise.
#pragma once

#include <string>

#include "comm/error.h"

namespace motley::wide {

class OptionError : public Error {
 public:
  // `option`: a member of one of the options' structs. `problem`: "is 3, but must be …".
  OptionError(const std::string& who, std::string option, std::string problem)
      : Error(ErrorCode::kInvalid, who + ": " + option + " " + problem),
        option_(std::move(option)),
        problem_(std::move(problem)) {}

  const std::string& option() const noexcept { return option_; }
  const std::string& problem() const noexcept { return problem_; }

 private:
  std::string option_;
  std::string problem_;
};

}  // namespace motley::wide
