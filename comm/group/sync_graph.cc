#include "comm/group/sync_graph.h"

#include <algorithm>
#include <utility>

namespace motley {

SyncGraph::SyncGraph(int size) : nodes_(static_cast<std::size_t>(size)) {}

SyncGraph::Node& SyncGraph::node(int rank) {
  Node& node = nodes_[static_cast<std::size_t>(rank)];
  if (node.span != span_) {
    node.span = span_;
    node.parent = rank;
    node.ranks = node.trains ? 1 : 0;
    node.took_part = false;
  }
  return node;
}

int SyncGraph::component(int rank) {
  while (true) {
    Node& self = node(rank);
    if (self.parent == rank) return rank;
    self.parent = node(self.parent).parent;  // halves the way for the next time
    rank = self.parent;
  }
}

void SyncGraph::add(int rank) {
  if (std::exchange(node(rank).trains, true)) return;
  ++training_;
  if (node(rank).took_part) ++took_part_;
  if (node(component(rank)).ranks++ == 0) ++components_;
}

void SyncGraph::remove(int rank) {
  if (!std::exchange(node(rank).trains, false)) return;
  --training_;
  if (node(rank).took_part) --took_part_;
  if (--node(component(rank)).ranks == 0) --components_;
  end_span_if_over();
}

void SyncGraph::join(const std::vector<int>& members) {
  int root = component(members.front());
  for (const int rank : members) {
    if (!std::exchange(node(rank).took_part, true) && node(rank).trains) ++took_part_;
    int other = component(rank);
    if (other == root) continue;
    if (node(other).ranks > node(root).ranks) std::swap(root, other);
    if (node(other).ranks > 0 && node(root).ranks > 0) --components_;
    node(other).parent = root;
    node(root).ranks += node(other).ranks;
  }
  const auto trained = [this](int rank) { return trains(rank); };
  joins_ += std::max<std::int64_t>(std::count_if(members.begin(), members.end(), trained), 1) - 1;
  end_span_if_over();
}

void SyncGraph::end_span_if_over() {
  if (joins_ < 2 * (std::int64_t{training_} - 1) || took_part_ < training_) return;
  if (components_ > 1) {
    if (!std::exchange(counted_, true)) ++spans_disconnected_;
    return;
  }
  ++span_;
  components_ = training_;
  took_part_ = 0;
  joins_ = 0;
  counted_ = false;
}

}  // namespace motley
