#include "comm/control/range_set.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace motley {

// The last range that begins at `number` or before; the end if there is none.
std::vector<Range>::const_iterator RangeSet::at_or_before(std::int64_t number) const noexcept {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), number,
                       [](std::int64_t value, const Range& range) { return value < range.begin; });
  return after == ranges_.begin() ? ranges_.end() : after - 1;
}

bool RangeSet::contains(Range range) const noexcept {
  if (range.count() <= 0) return true;
  const auto found = at_or_before(range.begin);
  return found != ranges_.end() && range.end <= found->end;
}

void RangeSet::add(Range range) {
  if (range.count() <= 0) return;
  count_ += range.count();
  auto next =
      std::lower_bound(ranges_.begin(), ranges_.end(), range.begin,
                       [](const Range& each, std::int64_t value) { return each.begin < value; });
  assert(next == ranges_.end() || range.end <= next->begin);
  if (next != ranges_.end() && next->begin == range.end) {
    range.end = next->end;
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin() && (next - 1)->end >= range.begin) {
    assert((next - 1)->end == range.begin);
    (next - 1)->end = range.end;
  } else {
    ranges_.insert(next, range);
  }
}

bool RangeSet::remove(Range range) {
  if (range.count() <= 0) return true;
  if (!contains(range)) return false;
  const auto found = ranges_.begin() + (at_or_before(range.begin) - ranges_.cbegin());
  const Range before{found->begin, range.begin};
  const Range after{range.end, found->end};
  count_ -= range.count();
  auto next = ranges_.erase(found);
  if (after.count() > 0) next = ranges_.insert(next, after);
  if (before.count() > 0) ranges_.insert(next, before);
  return true;
}

std::vector<Range> RangeSet::take(std::int64_t most) {
  std::vector<Range> taken;
  while (most > 0 && !ranges_.empty()) {
    const Range first{ranges_.front().begin,
                      ranges_.front().begin + std::min(most, ranges_.front().count())};
    taken.push_back(first);
    remove(first);
    most -= first.count();
  }
  return taken;
}

std::vector<Range> RangeSet::common(Range range) const {
  std::vector<Range> parts;
  for (const Range& each : ranges_) {
    const Range part{std::max(each.begin, range.begin), std::min(each.end, range.end)};
    if (part.begin < part.end) parts.push_back(part);
  }
  return parts;
}

std::string encode_ranges(const std::vector<std::vector<Range>>& lists) {
  std::string text;
  const auto put = [&text](std::int64_t value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const auto& list : lists) {
    put(static_cast<std::int64_t>(list.size()));
    for (const Range& range : list) {
      put(range.begin);
      put(range.end);
    }
  }
  return text;
}

std::vector<std::vector<Range>> decode_ranges(const std::string& text, std::size_t lists,
                                              std::int64_t count) {
  std::size_t at = 0;
  bool sound = text.size() % sizeof(std::int64_t) == 0;
  const auto get = [&] {
    std::int64_t value = 0;
    sound = sound && at + sizeof value <= text.size();
    if (!sound) return std::int64_t{0};
    std::memcpy(&value, text.data() + at, sizeof value);
    at += sizeof value;
    return value;
  };
  std::vector<std::vector<Range>> result(lists);
  for (auto& list : result) {
    const std::int64_t size = get();
    sound = sound && size >= 0 && size <= static_cast<std::int64_t>(kMaxRanges);
    RangeSet seen;
    for (std::int64_t i = 0; sound && i < size; ++i) {
      const std::int64_t begin = get();
      const Range range{begin, get()};
      sound = sound && begin >= 0 && begin < range.end && range.end <= count;
      if (sound) list.push_back(range);
    }
    std::vector<Range> sorted = list;
    std::sort(sorted.begin(), sorted.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      sound = sound && sorted[i - 1].end <= sorted[i].begin;
    }
  }
  if (!sound || at != text.size()) return {};
  return result;
}

}  // namespace motley
