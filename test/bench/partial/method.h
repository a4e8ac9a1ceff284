// test/bench/partial/method.h: methods as they are written on the command line.
//
//   all_reduce   local_sgd:4   backup_workers:1   eager_solo:10   parameter_server:4
//   partial_reduce:3                    three at a time; 0: adapted
//   partial_reduce:3+lambda=0.9+guard=none+largest=5+linger=0.1
//   partial_reduce:2+local=40           steps alone without a controller
//   partial_reduce:2+silent             steps are not announced
//   partial_reduce:2+all                moments are averaged, too
//   partial_reduce:2+bare               BatchNorm's running means and variances are not
//
// Behind the colon stands the group size, or local steps, backup workers, rounds or staleness.
#pragma once

#include <string>

#include "runtime/synchronizer.h"

namespace motley::bench {

struct Method {
  std::string name;
  runtime::SynchronizerOptions options;
  bool average_all = false;   // of a worker's state
  bool average_bare = false;  // parameters alone: no running means and variances
};

// Throws kInvalid, quoting what is not understood.
Method parse_method(const std::string& text);
// True if the slowest worker, or most of the slowest, set the pace.
bool waits_for_slow(const Method& method);

}  // namespace motley::bench
