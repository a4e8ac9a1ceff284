// examples/demo/report.h: the demo's results as text for a terminal and as a page for a browser.
#pragma once

#include <string>
#include <vector>

#include "examples/demo/experiment.h"

namespace demo {

// All results and what follows from them.
struct Report {
  Settings settings;
  Result single;
  // [0] nobody slow, [1] the last worker slow.
  Result all_reduce[2];
  Result partial_reduce[2];

  // The single worker's best log loss (median) plus 0.1 %.
  double target() const;
  // Of partial-reduce over all-reduce in time to the target; 0 if one of them never got there.
  double speed_up(int slow) const;
  // How far the final log loss is from the single worker's, as a share of it.
  double log_loss_gap(const Result& result) const;
  std::vector<const Result*> all() const;
};

// What was done, the table and the speed-ups.
std::string to_text(const Report& report);

// One self-contained HTML page: table, loss curves over time, timelines of the workers.
std::string to_html(const Report& report);

}  // namespace demo
