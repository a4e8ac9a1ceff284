#include "wide/kernel/batch.h"

namespace motley::wide {

void BatchByFeature::make(const Job& job, std::span<const std::uint64_t> rows, const Owner& owner,
                          std::span<std::uint32_t> position) {
  segments_.clear();
  segment_of_.clear();
  arriving_.clear();
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    const std::uint64_t row = rows[i];
    for (std::uint64_t e = job.row_begin[row]; e < job.row_begin[row + 1]; ++e) {
      const std::uint32_t slot = job.slots[e];
      if (!owner.owns(slot)) continue;
      if (position[slot] == 0) {
        segments_.push_back({.slot = slot, .begin = 0, .end = 0});
        position[slot] = static_cast<std::uint32_t>(segments_.size());
      }
      const std::uint32_t segment = position[slot] - 1;
      ++segments_[segment].end;  // the number of its edges, for now
      segment_of_.push_back(segment);
      const std::uint16_t field = job.fields == nullptr ? std::uint16_t{0} : job.fields[e];
      arriving_.push_back({.row = i, .field = field, .value = job.values[job.uniform ? row : e]});
    }
  }
  std::uint32_t begin = 0;
  for (Segment& segment : segments_) {
    position[segment.slot] = 0;
    const std::uint32_t n = segment.end;
    segment.begin = segment.end = begin;
    begin += n;
  }
  edges_.resize(arriving_.size());
  for (std::size_t i = 0; i < arriving_.size(); ++i) {
    edges_[segments_[segment_of_[i]].end++] = arriving_[i];
  }
}

}  // namespace motley::wide
