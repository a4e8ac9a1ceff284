// wide/kernel/batch.h: a mini-batch by feature: its edges in the order of slots, and for each slot
// in the order of rows. Each thread makes, and updates, the slots that it owns: no two write one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wide/kernel/kernels.h"

namespace motley::wide {

class BatchByFeature {
 public:
  struct Owner {
    int thread = 0;
    int threads = 1;
    // By groups of slots that fill cache lines.
    bool owns(std::uint32_t slot) const noexcept {
      return slot / 16 % static_cast<std::uint32_t>(threads) == static_cast<std::uint32_t>(thread);
    }
  };

  // Becomes the edges of `rows` whose slots `owner` owns. `position` has a zero for each slot,
  // before and after; owners may share it.
  void make(const Job& job, std::span<const std::uint64_t> rows, const Owner& owner,
            std::span<std::uint32_t> position);

  std::span<const Segment> segments() const noexcept { return segments_; }
  std::span<const Edge> edges() const noexcept { return edges_; }

 private:
  std::vector<Segment> segments_;  // in the order in which the batch first has the slots
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> segment_of_;  // for each edge as it comes
  std::vector<Edge> arriving_;
};

}  // namespace motley::wide
