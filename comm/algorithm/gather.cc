// Gather: the root ends with everybody's block. Scatter: everybody ends with its block of the root.
//
// direct  Every block goes straight between the root and its rank.
//           steps 1, the root p-1   bytes sent by each, or by the root, its blocks once
//           latency of 1 message once all are under way   best for long blocks
// tree    A binomial tree, ranks counted from the root: a rank has the blocks of its subtree.
//           steps at most log2 p + 1; at the root, whose blocks go round the end, one more
//           bytes a block once for every level   latency of log2 p messages   best for short blocks
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// IJHPCA 2005.
#include <algorithm>
#include <utility>

#include "comm/algorithm/binomial.h"
#include "comm/algorithm/families.h"

namespace motley {
namespace {

// The steps between the root and a child, whose subtree is [first, first + span) counted from the
// root. As the root has its blocks by rank, they may go round the end: then in two messages.
class Blocks {
 public:
  Blocks(const Shape& shape) : size_(shape.size), root_(shape.root) {}

  int rank_of(int index) const { return (root_ + index) % size_; }
  // Blocks [first, first + span), before the end.
  int before_end(int first, int span) const {
    const int start = rank_of(first);
    return std::min(span, size_ - start);
  }

 private:
  int size_;
  int root_;
};

// What goes between a rank and its parent: chunks 0 … span - 1 here.
void add_to_parent(std::vector<Step>& steps, Step::Kind kind, const Shape& shape,
                   const Binomial& tree) {
  const Blocks blocks(shape);
  const int peer = blocks.rank_of(tree.parent);
  const int first = tree.parent == 0 ? blocks.before_end(tree.index, tree.span) : tree.span;
  steps.push_back({kind, peer, 0, first});
  if (first < tree.span) steps.push_back({kind, peer, first, tree.span - first});
}

// What goes between a rank and child k.
void add_to_child(std::vector<Step>& steps, Step::Kind kind, const Shape& shape,
                  const Binomial& tree, int k) {
  const Blocks blocks(shape);
  const int peer = blocks.rank_of(tree.child(k));
  const int span = tree.child_span(k);
  if (tree.parent >= 0) return steps.push_back({kind, peer, 1 << k, span});
  const int first = blocks.before_end(tree.child(k), span);
  steps.push_back({kind, peer, peer, first});
  if (first < span) steps.push_back({kind, peer, 0, span - first});
}

Schedule finished(const Shape& shape, const Binomial& tree, int root_chunks,
                  std::vector<Step> steps) {
  const bool is_root = tree.parent < 0;
  Schedule schedule = Schedule::from_steps(is_root ? root_chunks : tree.span, std::move(steps));
  schedule.max_step_chunks = largest_subtree(shape.size);  // the same on all ranks
  schedule.scratch = is_root ? 0 : tree.span - 1;
  return schedule;
}

Binomial tree_of(const Shape& shape) {
  return {(shape.rank - shape.root + shape.size) % shape.size, shape.size};
}

}  // namespace

Schedule direct_gather(const Shape& shape) {
  const auto at = [shape](int i) -> Step {
    if (shape.rank != shape.root) return {Step::kSend, shape.root, 0, 1};
    const int from = (shape.root + 1 + i) % shape.size;
    return {Step::kRecv, from, from, 1};
  };
  if (shape.rank != shape.root) return {.steps = 1, .at = at};
  return {.chunks = shape.size, .steps = shape.size - 1, .at = at};
}

Schedule direct_scatter(const Shape& shape) {
  const auto at = [shape](int i) -> Step {
    if (shape.rank != shape.root) return {Step::kRecv, shape.root, 0, 1};
    if (i == 0) return {Step::kCopy, 0, shape.root, 1, shape.size};
    const int to = (shape.root + i) % shape.size;
    return {Step::kSend, to, to, 1};
  };
  if (shape.rank != shape.root) return {.steps = 1, .at = at};
  return {.chunks = shape.size + 1, .steps = shape.size, .at = at};
}

Schedule tree_gather(const Shape& shape) {
  const Binomial tree = tree_of(shape);
  std::vector<Step> steps;
  for (int k = 0; k < tree.children; ++k) add_to_child(steps, Step::kRecv, shape, tree, k);
  if (tree.parent >= 0) add_to_parent(steps, Step::kSend, shape, tree);
  return finished(shape, tree, shape.size, std::move(steps));
}

Schedule tree_scatter(const Shape& shape) {
  const Binomial tree = tree_of(shape);
  std::vector<Step> steps;
  if (tree.parent >= 0) add_to_parent(steps, Step::kRecv, shape, tree);
  for (int k = tree.children - 1; k >= 0; --k) add_to_child(steps, Step::kSend, shape, tree, k);
  if (tree.parent < 0) steps.push_back({Step::kCopy, 0, shape.rank, 1, shape.size});
  return finished(shape, tree, shape.size + 1, std::move(steps));
}

}  // namespace motley
