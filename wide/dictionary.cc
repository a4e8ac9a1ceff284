#include "wide/dictionary.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/error.h"

namespace motley::wide {
namespace {

// Murmur3's last mixing step: ids that differ in any bit spread over the whole table.
std::uint32_t mix(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

}  // namespace

Dictionary::Dictionary(std::vector<std::uint32_t> ids) : ids_(std::move(ids)) {
  if (ids_.size() > (std::size_t{1} << 31)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("dictionary: {} distinct features exceed the limit 2^31", ids_.size()));
  }
  table_.assign(16, kUnknown);
  while (table_.size() < 2 * ids_.size()) table_.assign(2 * table_.size(), kUnknown);
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const std::size_t at = find(ids_[i]);
    if (table_[at] != kUnknown) {
      throw Error(ErrorCode::kInvalid, fmt::format("dictionary: id {} appears twice", ids_[i]));
    }
    table_[at] = static_cast<std::uint32_t>(i);
  }
}

std::size_t Dictionary::find(std::uint32_t id) const noexcept {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = mix(id) & mask;
  while (table_[at] != kUnknown && ids_[table_[at]] != id) at = (at + 1) & mask;
  return at;
}

void Dictionary::grow() {
  table_.assign(2 * table_.size(), kUnknown);
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    table_[find(ids_[i])] = static_cast<std::uint32_t>(i);
  }
}

Dictionary Dictionary::by_frequency(const Dataset& data) {
  Frequencies frequencies;
  frequencies.add(data.ids);
  return frequencies.dictionary();
}

void Frequencies::add(std::span<const std::uint32_t> ids) {
  for (const std::uint32_t id : ids) ++counts_[place(id)];
}

std::size_t Frequencies::place(std::uint32_t id) {
  const std::size_t at = seen_.find(id);
  if (seen_.table_[at] != Dictionary::kUnknown) return seen_.table_[at];
  const std::size_t next = counts_.size();
  seen_.table_[at] = static_cast<std::uint32_t>(next);
  seen_.ids_.push_back(id);
  counts_.push_back(0);
  if (2 * seen_.ids_.size() > seen_.table_.size()) seen_.grow();
  return next;
}

Dictionary Frequencies::dictionary() const {
  const std::span<const std::uint32_t> seen = seen_.ids();
  std::vector<std::uint32_t> order(seen.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return counts_[a] != counts_[b] ? counts_[a] > counts_[b] : seen[a] < seen[b];
  });
  std::vector<std::uint32_t> ids(order.size());
  std::transform(order.begin(), order.end(), ids.begin(), [&](std::uint32_t i) { return seen[i]; });
  return Dictionary(std::move(ids));
}

Dictionary Dictionary::grown(const Dataset& data) const {
  std::vector<std::uint32_t> ids = ids_;
  const Dictionary more = by_frequency(data);
  for (const std::uint32_t id : more.ids()) {
    if (slot(id) == kUnknown) ids.push_back(id);
  }
  return Dictionary(std::move(ids));
}

}  // namespace motley::wide
