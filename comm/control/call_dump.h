// comm/control/call_dump.h: the last calls of every rank as a file of JSON lines, for whoever looks
// for the call in which ranks went apart.
//
//   {"dump": "all_reduce-1580", "why": "rank 3 of 8: all_reduce #1580 … timed out", "by": 3, …}
//   {"rank": 0, "call": "all_reduce", "number": 1579, "state": "done", "ended_s": 31.2, …}
//   {"rank": 2, "missing": "it did not answer within 2.0 s"}
//   {"end": true, "ranks": 8, "missing": [2]}
//
// Times are seconds before the rank's calls were told, null for what has not happened. Calls of a
// rank stand in the order in which they began. The file is there, under its name, once it is whole.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/recorder.h"

namespace motley {

class CallDump {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(2);  // for ranks that do not answer

  struct Setup {
    std::string folder;  // which exists
    std::string name;    // "all_reduce-1580": of the file, and of the dump among the ranks
    std::string why;
    int rank = 0;  // who makes it
    int size = 1;
  };

  // Throws kIo if the file cannot be written.
  CallDump(Setup setup, TimePoint now);
  CallDump(const CallDump&) = delete;
  CallDump& operator=(const CallDump&) = delete;
  ~CallDump();  // one that is not whole leaves no file

  const std::string& name() const noexcept { return setup_.name; }
  const std::string& path() const noexcept { return path_; }
  TimePoint deadline() const noexcept { return started_ + kPatience; }
  // Ranks that have said nothing yet, ascending.
  std::vector<int> missing() const;

  // What `rank` told at `now`; the first time counts.
  void add(int rank, const std::vector<CallRecord>& calls, TimePoint now);
  // `rank` has nothing to tell.
  void add_missing(int rank, const std::string& why);
  // No more is to come: ranks that have said nothing did not answer. Writes the file in whole.
  // Throws kIo if that cannot be done.
  void finish();

 private:
  void write(const std::string& line);
  bool take(int rank);

  Setup setup_;
  std::string path_;
  TimePoint started_;
  std::ofstream file_;        // open until it is whole
  std::vector<bool> heard_;   // by rank
  std::vector<int> without_;  // those that gave no calls
};

}  // namespace motley
