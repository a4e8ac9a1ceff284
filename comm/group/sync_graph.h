// comm/group/sync_graph.h: who has averaged with whom of late. Groups in, components out.
//
// Ranks that shared a group are in one component. It counts over spans: a span begins with every
// rank on its own and ends when its groups could have joined all ranks twice over, every rank that
// trains was in one, and all are in one component. So any stretch of groups that contains a whole
// span is connected. Nothing is looked at again: joining costs next to nothing, and a new span
// nothing.
#pragma once

#include <cstdint>
#include <vector>

namespace motley {

class SyncGraph {
 public:
  explicit SyncGraph(int size);

  // `rank` trains from now on, or no more. What it averaged stays true.
  void add(int rank);
  void remove(int rank);
  // A group; some of its members may not train.
  void join(const std::vector<int>& members);

  bool trains(int rank) const { return nodes_[static_cast<std::size_t>(rank)].trains; }
  // Of `rank`, as the number of one of its ranks.
  int component(int rank);
  // Of ranks that train.
  int components() const noexcept { return components_; }
  int training() const noexcept { return training_; }
  // The groups of this span could have joined all ranks, and have not: it is time to see to it.
  bool is_due() const noexcept { return components_ > 1 && joins_ >= training_ - 1; }
  // Spans that were over but for their having more than one component.
  std::uint64_t spans_disconnected() const noexcept { return spans_disconnected_; }

 private:
  struct Node {
    std::uint64_t span = 0;  // of which the rest is true
    int parent = 0;
    int ranks = 0;  // of its component that train, if it is the root
    bool took_part = false;
    bool trains = false;
  };

  // As it is in this span.
  Node& node(int rank);
  void end_span_if_over();

  std::vector<Node> nodes_;  // by rank
  std::uint64_t span_ = 1;
  int training_ = 0;
  int components_ = 0;
  int took_part_ = 0;       // of those that train
  std::int64_t joins_ = 0;  // a group of p members: p - 1
  bool counted_ = false;    // this span is among spans_disconnected_
  std::uint64_t spans_disconnected_ = 0;
};

}  // namespace motley
