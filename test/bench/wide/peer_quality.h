// test/bench/wide/peer_quality.h: what other trainers of wide models predict, with their defaults,
// by the protocol of wide_quality.
#pragma once

#include <string>
#include <vector>

#include "wide/dataset.h"
#include "wide/loss.h"
#include "wide/model.h"

namespace motley::wide {

struct Split {
  const Dataset& train;
  const Dataset& stop;  // stops those that can stop
  const Dataset& test;  // read once, to be predicted
};

struct PeerScores {
  std::string name;
  std::vector<float> scores;  // of the test rows, before the sigmoid
  std::string failure;        // instead: what went wrong
};

// Of those that this machine has, by the flags of peers.h, and that know the kind of model.
// `folder`: for all that is written.
std::vector<PeerScores> peer_scores(const Split& split, ModelKind kind, int factors, Loss loss,
                                    const std::string& folder);

}  // namespace motley::wide
