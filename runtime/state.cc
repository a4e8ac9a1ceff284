#include "runtime/state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "comm/error.h"

namespace motley::runtime {

const char* name(StatePolicy policy) noexcept {
  switch (policy) {
    case StatePolicy::kAverage:
      return "average";
    case StatePolicy::kMaximum:
      return "maximum";
    case StatePolicy::kSum:
      return "sum";
    case StatePolicy::kKeepOwn:
      return "keep_own";
    case StatePolicy::kOwned:
      return "owned";
  }
  return "unknown";
}

std::string to_text(const StateItem& item) {
  return fmt::format("\"{}\" {} [{}] {}{}{}", item.name, name(item.data.dtype),
                     fmt::join(item.shape, ", "), name(item.policy),
                     item.mean.empty() ? "" : " of mean ", item.mean);
}

void State::add(StateItem item) {
  std::size_t count = 1;
  for (const std::size_t dimension : item.shape) count *= dimension;
  if (item.name.empty()) {
    throw Error(ErrorCode::kInvalid, "state: an item has no name. Give each a name of its own.");
  }
  const bool elsewhere = item.policy == StatePolicy::kOwned && item.data.count == 0;
  if (count != item.data.count && !elsewhere) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("state: the shape of \"{}\" has {} elements, its data {}. Pass the "
                            "shape of the data.",
                            item.name, count, item.data.count));
  }
  if (std::ranges::any_of(items_, [&](const StateItem& one) { return one.name == item.name; })) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("state: two items are called \"{}\". Give each a name of its own, or "
                            "append() one list under a prefix.",
                            item.name));
  }
  items_.push_back(std::move(item));
}

void State::append(std::string_view prefix, const State& other) {
  const std::vector<StateItem> items = other.items_;  // `other` may be this list
  for (StateItem item : items) {
    item.name.insert(0, prefix);
    if (!item.mean.empty()) item.mean.insert(0, prefix);
    add(std::move(item));
  }
}

const StateItem& State::find(std::string_view name) const {
  std::string names;
  for (const StateItem& item : items_) {
    if (item.name == name) return item;
    names += (names.empty() ? "" : ", ") + item.name;
  }
  throw Error(ErrorCode::kInvalid,
              fmt::format("state: no item is called \"{}\". There are: {}.", name, names));
}

std::size_t State::size_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const StateItem& item : items_) bytes += item.data.size_bytes();
  return bytes;
}

}  // namespace motley::runtime
