// comm/group/group_table.h: the groups under way, and how each ends. Reports in, verdicts out.
//
// A group averages into memory beside the model. A member takes the result as soon as it has all of
// it, says so and steps on; it keeps the result until the group is committed. What each brought is
// kept by it, too, until it has taken the result. When every living member has said how its attempt
// ended:
//   all done     committed
//   all failed   the living members run attempt + 1 on their own data, which nobody has touched; a
//                single one goes on alone
//   some done    those that failed get the result of one that is done, as attempt + 1, as soon as
//                one asks for its next group
// So the living members of a group end equal in every case, and in the good one nobody waits for
// the controller's word. A member that dies ceases to be waited for, in any state; if the last dies
// that was done, the others are all that have failed.
//
//   formed -> running -> (all done)    committed
//                     -> (any failed)  aborted -> running, attempt + 1: retry or healing; or solo
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "comm/group.h"

namespace motley {

struct Verdict {
  enum Kind : std::uint8_t { kCommit, kRetry, kHeal, kSolo };
  Kind kind = kCommit;
  GroupTag tag;              // of the group committed, or of the attempt to run
  std::vector<int> members;  // whom to tell, ascending; kRetry, kHeal: also who takes part
  int donor = -1;            // kHeal: who has the result
  std::vector<int> keepers;  // kHeal: who has it, too, and has no part in the attempt
};

// Why an attempt was aborted: what came first.
enum class AbortReason : std::uint8_t { kDied, kWithdrew, kPeerLost, kTimeout, kLate, kOther };
inline constexpr std::size_t kAbortReasons = 6;
const char* name(AbortReason reason) noexcept;

class GroupTable {
 public:
  struct Counts {
    std::uint64_t formed = 0;
    std::uint64_t committed = 0;
    std::uint64_t retried = 0;
    std::uint64_t healed = 0;
    std::uint64_t ended_alone = 0;  // one was left
    std::uint64_t died_out = 0;
    std::uint64_t adopted = 0;
    std::array<std::uint64_t, kAbortReasons> aborts{};  // attempts, by AbortReason
  };

  explicit GroupTable(std::uint32_t epoch) : epoch_(epoch) {}

  // Tags of groups formed from now on are above those of epochs with fewer restarts (the upper
  // half).
  void begin_epoch(std::uint32_t epoch) noexcept;
  // Starts a group; tags ascend. `members`: ascending, at least two, none in another group.
  GroupTag form(const std::vector<int>& members);
  // A member tells of a group of a controller before this one. False if it is known already, then
  // at this attempt at least, or some member is in another group.
  bool adopt(const GroupTag& tag, const std::vector<int>& members);

  // `rank`, in no group, says that it is done with attempt `tag` of one that is still open, of
  // which it was not known to be: others may need what it has.
  void admit(int rank, const GroupTag& tag);

  // True while `rank` belongs to the attempt `tag` of its group and has not reported; or to a later
  // attempt, of which it may not have heard.
  bool awaits(int rank, const GroupTag& tag) const;
  // `rank` is done, and its group is not committed yet.
  bool keeps_result(int rank) const;
  bool contains(int rank) const { return group_of_.contains(rank); }
  // Of the group that contains `rank`.
  const GroupTag& tag_of(int rank) const { return groups_.at(group_of_.at(rank)).tag; }
  std::vector<int> members_of(int rank) const;

  // `rank`, of which awaits() is true, has ended its attempt. The verdict, if there is one now.
  std::optional<Verdict> done(int rank);
  std::optional<Verdict> failed(int rank, AbortReason why);
  // `rank`, which keeps the result, asks for its next group: it is there to hand the result on.
  std::optional<Verdict> asks(int rank);
  // `rank` does not ask any more, nor does it take part in an attempt; but if it has the result, it
  // keeps it.
  std::optional<Verdict> withdraw(int rank);
  // `rank` has not begun its attempt, and is late. The others need not wait for it: if none of them
  // can complete the attempt, the next is without it. Whoever has completed it has what this rank
  // brought, which is then about to say that it has begun.
  std::optional<Verdict> excuse(int rank, AbortReason why);
  // `rank`, of which awaits() is true, has begun. True if it can: nobody has failed, nor was told
  // that it is late.
  bool begins(int rank);
  // `rank` is dead, or is through with its group.
  std::optional<Verdict> remove(int rank, AbortReason why);

  std::size_t size() const noexcept { return groups_.size(); }
  const Counts& counts() const noexcept { return counts_; }

 private:
  enum class State : std::uint8_t { kRunning, kLate, kDone, kFailed };
  struct Member {
    int rank;
    State state = State::kRunning;
    bool has_result = false;
    bool asks = false;
  };
  struct Running {
    GroupTag tag;
    std::vector<Member> members;
    std::optional<AbortReason> reason;  // of this attempt
  };

  const Member* find(int rank) const;
  Member& member(int rank) { return const_cast<Member&>(*find(rank)); }
  Running& group_of(int rank) { return groups_.at(group_of_.at(rank)); }
  std::optional<Verdict> judge(std::uint64_t id);
  std::optional<Verdict> heal(Running& group);
  Verdict end(std::uint64_t id, Verdict::Kind kind);
  void next_attempt(Running& group);

  std::uint32_t epoch_;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Running> groups_;
  std::unordered_map<int, std::uint64_t> group_of_;  // by rank
  Counts counts_;
};

}  // namespace motley
