// All-reduce by leaders. On each host the data is reduced to the first rank in a binomial tree; the
// first ranks of all hosts run halving-doubling; each gives the result to its host in a tree.
//   messages 2 log2 L within a host and 2 log2 H between hosts, one after another
//   bytes sent between hosts 2(H-1)/H * n per host, all by one rank   best for short n among many
//   ranks, or where a host has one port that a single rank can keep busy
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// IJHPCA 2005, section 6 (shared-memory nodes); Hierarchical all-reduce of many libraries.
#include <bit>
#include <utility>

#include "comm/algorithm/families.h"
#include "comm/algorithm/hosts.h"

namespace motley {
namespace {

class Leader {
 public:
  Leader(const Shape& shape, Schedule between)
      : hosts_(shape),
        host_(hosts_.host_of(shape.rank)),
        index_(hosts_.index_of(shape.rank)),
        between_(std::move(between)) {
    const int size = hosts_.size_of(host_);
    const auto own_bit = index_ == 0 ? 31 : std::countr_zero(static_cast<unsigned>(index_));
    while (children_ < own_bit && index_ + (1 << children_) < size) ++children_;
  }

  int steps() const { return 2 * children_ + (index_ == 0 ? between_.steps : 2); }

  // Collects from the children, then hands over to the parent or the leaders, then gives back.
  Step at(int i) const {
    if (i < children_) return whole(Step::kRecvReduce, index_ + (1 << i));
    i -= children_;
    const int middle = index_ == 0 ? between_.steps : 2;
    if (i >= middle) return whole(Step::kSend, index_ + (1 << (children_ - 1 - (i - middle))));
    if (index_ != 0) {
      const int parent = index_ & (index_ - 1);
      return whole(i == 0 ? Step::kSend : Step::kRecv, parent);
    }
    Step step = between_.at(i);
    step.peer = hosts_.rank_at(step.peer, 0);
    return step;
  }

 private:
  Step whole(Step::Kind kind, int index) const {
    return {kind, hosts_.rank_at(host_, index), 0, between_.chunks};
  }

  Hosts hosts_;
  int host_;
  int index_;
  int children_ = 0;
  Schedule between_;
};

}  // namespace

Schedule leader_all_reduce(const Shape& shape) {
  const Hosts hosts(shape);
  const Schedule between =
      halving_doubling_all_reduce({.rank = hosts.host_of(shape.rank), .size = hosts.count()});
  const Leader leader(shape, between);
  return {.chunks = between.chunks,
          .steps = leader.steps(),
          .max_step_chunks = hosts.most() > 1 ? between.chunks : between.max_step_chunks,
          .at = [leader](int i) { return leader.at(i); }};
}

}  // namespace motley
