// comm/group/group_table.h: the groups under way, and how each ends. Reports in, verdicts out.
//
// A group averages into a shadow; no member takes the result before the verdict. The verdict is due
// when every living member has said how its attempt ended, done or failed:
//   all done    commit: each has the same result and takes it (whatever became of the dead);
//   any failed  retry: the living members run attempt + 1 on their own data, which nobody has
//   touched;
//               a single one goes on alone.
// So the living members of a group end equal in every case, at the price of one round trip per
// group. A member that dies ceases to be waited for, in any state.
//
//   formed -> running -> (all done) committed
//                     -> (any failed) aborted -> running, attempt + 1, or solo
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "comm/group.h"

namespace motley {

struct Verdict {
  enum Kind : std::uint8_t { kCommit, kRetry, kSolo };
  Kind kind = kCommit;
  GroupTag tag;              // of the group committed, or of the attempt to run
  std::vector<int> members;  // whom to tell, ascending; kRetry: also whom to average with
};

class GroupTable {
 public:
  enum class Report : std::uint8_t { kDone, kFailed };

  explicit GroupTable(std::uint32_t epoch) : epoch_(epoch) {}

  // Starts a group; tags ascend. `members`: ascending, at least two, none in another group.
  GroupTag form(const std::vector<int>& members);
  // True while `rank` belongs to the attempt `tag` of its group and has not reported.
  bool awaits(int rank, const GroupTag& tag) const;
  // `rank`, of which awaits() is true, has ended its attempt. The verdict, if this was the last
  // report.
  std::optional<Verdict> report(int rank, Report report);
  // `rank` is dead or has withdrawn. The verdict on its group, if only its report was missing.
  std::optional<Verdict> remove(int rank);

  std::size_t size() const noexcept { return groups_.size(); }

 private:
  enum class State : std::uint8_t { kRunning, kDone, kFailed };
  struct Member {
    int rank;
    State state;
  };
  struct Running {
    GroupTag tag;
    std::vector<Member> members;
  };

  Member* find(int rank);
  std::optional<Verdict> judge(std::uint64_t id);

  std::uint32_t epoch_;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Running> groups_;
  std::unordered_map<int, std::uint64_t> group_of_;  // by rank
};

}  // namespace motley
