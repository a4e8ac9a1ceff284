// A program run by a test: started with pipes, read, signalled, waited for, all with deadlines.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "comm/clock.h"

namespace motley {

class ProgramRun {
 public:
  struct Result {
    int code = -1;    // what it returned; -1 if a signal ended it
    int signal = 0;   // that ended it
    std::string out;  // all that it wrote
    std::string error;
  };

  // `words`: path of the program and arguments. Its standard input is `input`, then the end.
  explicit ProgramRun(std::vector<std::string> words, const std::string& input = "");
  ProgramRun(const ProgramRun&) = delete;
  ProgramRun& operator=(const ProgramRun&) = delete;
  ~ProgramRun();  // kills it if it runs

  pid_t pid() const noexcept { return pid_; }
  void signal(int signal) const;
  // What follows `text` up to the end of its line, once it has been written on either stream.
  // Throws kTimeout, with all output so far, if that is not within `limit`.
  std::string await(const std::string& text, Duration limit = seconds(30));
  // Throws kTimeout likewise. Once.
  Result wait(Duration limit = seconds(60));

 private:
  // Reads what there is; false at the end of both streams, kTimeout at `deadline`.
  bool read_more(TimePoint deadline);

  pid_t pid_ = 0;
  int streams_[2] = {-1, -1};
  std::string texts_[2];
};

}  // namespace motley
