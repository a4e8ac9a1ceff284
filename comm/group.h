// comm/group.h: a group is a value: an ordered list of ranks and a tag. It needs no set-up, no
// agreement and no memory after its last use, so any subset can run a collective at once.
//
//   Group evens({0, 2, 4}, {.id = 7});
//   if (evens.contains(comm.rank()))
//     comm.all_reduce(data, ReduceOp::kSum, {.group = &evens}).wait();
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace motley {

// Tells one use of a group from every other. Ids with the top bit set belong to the controller,
// which hands them out in ascending order, those with the next bit set to messages between two
// ranks; users choose among the rest, 0 being all ranks.
struct GroupTag {
  std::uint64_t id = 0;
  std::uint32_t epoch = 0;    // of the controller that formed the group
  std::uint32_t attempt = 0;  // 0, then one more for each retry with the survivors

  static constexpr std::uint64_t kControllerBit = std::uint64_t{1} << 63;
  bool from_controller() const noexcept { return (id & kControllerBit) != 0; }
  static constexpr std::uint64_t kPairBit = std::uint64_t{1} << 62;
  bool is_pair() const noexcept { return (id >> 62) == 1; }
  // Of the messages from one rank to another.
  static GroupTag pair(int from, int to) noexcept {
    return {.id =
                kPairBit | static_cast<std::uint64_t>(from) << 31 | static_cast<std::uint64_t>(to)};
  }
  friend auto operator<=>(const GroupTag&, const GroupTag&) = default;
};

// What follows the name and number of a call: " of group 7.0", " from rank 0 to 1", or nothing.
std::string scope_text(const GroupTag& tag);

class Group {
 public:
  // `ranks`: members in group order, each once; the same list and tag on every member.
  // Throws kInvalid on an empty list, a duplicate or a negative rank.
  explicit Group(std::vector<int> ranks, GroupTag tag = {});
  // Ranks 0 … size - 1 with tag 0.
  static Group world(int size);

  int size() const noexcept { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const noexcept { return ranks_; }
  int rank_at(int index) const noexcept { return ranks_[static_cast<std::size_t>(index)]; }
  // Position of `rank`, or -1.
  int index_of(int rank) const noexcept;
  bool contains(int rank) const noexcept { return index_of(rank) >= 0; }
  const GroupTag& tag() const noexcept { return tag_; }

  // A value counts the calls of one rank: ranks that are threads need one each. Throws kInvalid if
  // another rank has called on this one. Copies are nobody's yet.
  void use_by(int rank) const;
  // Number of the next call in this group. Members make the same calls in the same order, so
  // the number, kept in the value, is the same everywhere.
  std::uint32_t next_call() const noexcept { return calls_++; }
  // The same, of those on device memory.
  std::uint32_t next_device_call() const noexcept { return device_calls_++; }

 private:
  // Whose calls are counted, or -1.
  struct User {
    std::atomic<int> rank{-1};
    User() = default;
    User(const User&) noexcept {}
    User& operator=(const User&) noexcept {
      rank.store(-1, std::memory_order_relaxed);
      return *this;
    }
  };

  std::vector<int> ranks_;
  GroupTag tag_;
  mutable User user_;
  mutable std::uint32_t calls_ = 0;
  mutable std::uint32_t device_calls_ = 0;
};

}  // namespace motley
