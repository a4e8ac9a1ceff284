// runtime/metrics.h: what workers did when: as JSON lines, one object a line, appended as it
// happens; as a trace for a viewer; as totals for Prometheus; and who is slow. TrainerOptions has
// files of all these written.
//
//   MetricsLog log("build/demo/worker2.jsonl");
//   trainer.on_round([&](const Round& round) { log.write(round); });
//
// {"rank":2,"step":17,"start":0.81,"computed":0.86,"together":0.91,"end":0.912,"group":[0,2]},
// times in seconds.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
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

// The same for chrome://tracing or ui.perfetto.dev: of each round of a worker three slices,
// computing, waiting and averaging, the last with the group. Files of several workers may be loaded
// together.
class ChromeTrace {
 public:
  // Throws kIo if `path` cannot be created.
  explicit ChromeTrace(const std::string& path);
  ~ChromeTrace();  // ends the file, which can be read without that too
  void write(const Round& round);
  void flush();  // as MetricsLog's

 private:
  void slice(const char* name, const Round& round, Duration from, Duration to);

  std::string path_;
  std::ofstream out_;
  bool first_ = true;
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

// What the rounds of one worker add up to.
class Totals {
 public:
  explicit Totals(int rank) : rank_(rank) {}
  void add(const Round& round);

  int rank() const noexcept { return rank_; }
  std::int64_t steps() const noexcept { return steps_; }
  Duration step() const noexcept;     // computing of a step, in the mean; 0 for none
  Duration waiting() const noexcept;  // of a round, in the mean
  // Prometheus' text format: counters of rounds by size of group, steps and seconds by phase, with
  // the rank as a label.
  std::string to_prometheus() const;

 private:
  int rank_;
  std::int64_t steps_ = 0;
  std::int64_t rounds_ = 0;
  Duration computing_{}, waiting_{}, averaging_{};
  std::map<std::size_t, std::int64_t> sizes_;  // rounds by members of the group
};

// A worker among all: how slow, and whom others wait for.
struct Standing {
  int rank = 0;
  std::int64_t steps = 0;
  Duration step{};      // computing of a step, in the mean
  Duration waiting{};   // of a round, in the mean: who is slow waits least
  double slowness = 1;  // `step` as a multiple of the median worker's
};
// The slowest first, the same on all: every worker calls it. One all_gather of 4 doubles.
std::vector<Standing> rank_stragglers(Communicator& comm, const Totals& mine);
// The same of totals that lie here.
std::vector<Standing> rank_stragglers(const std::vector<Totals>& workers);
// One line a worker: "worker 3: 40.2 ms a step, 4.0 times the median; waits 0.1 ms a round".
std::string to_text(const std::vector<Standing>& standings);

}  // namespace motley::runtime
