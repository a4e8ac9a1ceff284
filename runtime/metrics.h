// runtime/metrics.h: what workers did when, as JSON lines: one object a line, appended as it
// happens.
//
//   MetricsLog log("build/demo/worker2.jsonl");
//   trainer.on_round([&](const Round& round) { log.write(round); });
//
// {"rank":2,"step":17,"start":0.81,"computed":0.86,"together":0.91,"end":0.912,"group":[0,2]},
// times in seconds.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "runtime/trainer.h"

namespace motley::runtime {

class MetricsLog {
 public:
  // Throws kIo if `path` cannot be created.
  explicit MetricsLog(const std::string& path);
  void write(const Round& round);
  // Writes what is buffered; throws kIo, naming the file, if it cannot. The destructor tries too.
  void flush();

 private:
  std::string path_;
  std::ofstream out_;
};

// The rounds in a file that MetricsLog wrote. Throws kInvalid, naming file and line.
std::vector<Round> read_rounds(const std::string& path);

// Shares of a worker's time, from its rounds; they add up to 1 (0 for no rounds).
struct TimeShares {
  double computing = 0;
  double waiting = 0;
  double averaging = 0;
};
TimeShares time_shares(const std::vector<Round>& rounds);

}  // namespace motley::runtime
