// test/bench/partial/results.h: what trials came to, kept as JSON lines, so that measuring can stop
// at any time and be gone on with, and tables of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "test/bench/partial/trial.h"

namespace motley::bench {

struct Result {
  std::string problem;
  int workers = 0;
  Trial trial;
  Outcome outcome;
};

class Results {
 public:
  // Of the file `path`, if there is one; empty: nothing is kept. Throws kInvalid, naming the line,
  // for what is no result.
  explicit Results(std::string path);

  // To the file, too.
  void add(const Result& result);
  const Result* find(const std::string& problem, int workers, const Trial& trial) const;
  const std::vector<Result>& all() const noexcept { return all_; }

 private:
  std::string path_;
  std::vector<Result> all_;
};

struct TableOptions {
  std::string title;
  std::vector<std::string> patterns;
  std::vector<std::string> methods;
  int digits = 0;
};
// The mean over seeds and its 95 % interval, of those results that have `what`; how many have not.
void print_table(const TableOptions& options, const std::vector<Result>& results,
                 std::optional<double> Outcome::*what);

}  // namespace motley::bench
