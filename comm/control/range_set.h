// comm/control/range_set.h: sets of integers as ranges.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/supply.h"

namespace motley {

class RangeSet {
 public:
  RangeSet() = default;
  explicit RangeSet(Range range) { add(range); }

  // In ascending order; no two touch.
  const std::vector<Range>& ranges() const noexcept { return ranges_; }
  std::int64_t count() const noexcept { return count_; }
  bool contains(Range range) const noexcept;

  // What of `range` is in the set.
  std::vector<Range> common(Range range) const;

  // Of which no number is in the set.
  void add(Range range);
  // False, and nothing changes, unless it contains the whole range.
  bool remove(Range range);
  // Takes out the first numbers, `most` of them if there are as many.
  std::vector<Range> take(std::int64_t most);

 private:
  std::vector<Range>::const_iterator at_or_before(std::int64_t number) const noexcept;

  std::vector<Range> ranges_;
  std::int64_t count_ = 0;
};

// One list after another. At most kMaxRanges in all lists.
inline constexpr std::size_t kMaxRanges = 1 << 14;
std::string encode_ranges(const std::vector<std::vector<Range>>& lists);
// Nothing that is empty, upside down or outside [0, count); no two of a list overlap. An empty
// result: not `lists` well-formed lists.
std::vector<std::vector<Range>> decode_ranges(const std::string& text, std::size_t lists,
                                              std::int64_t count);

}  // namespace motley
