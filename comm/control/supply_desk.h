// comm/control/supply_desk.h: the controller's side of supply.h, as a state machine without I/O.
//
// A rank says with each request what it has counted and what it holds, so what was granted in an
// answer that its receiver did not wait for is free again.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "comm/control/message.h"
#include "comm/control/range_set.h"
#include "comm/control/recollection.h"

namespace motley {

// One supply: every number is free, held by one rank or counted.
class SupplyLedger {
 public:
  SupplyLedger(std::int64_t count, const std::vector<Range>& uncounted);

  std::int64_t count() const noexcept { return count_; }
  std::int64_t left() const noexcept { return left_; }  // not counted
  // `rank` has counted those. False, and nothing changes, if it does not hold one of them.
  bool counted(int rank, const std::vector<Range>& ranges);
  // Frees what `rank` holds but for those.
  void keep(int rank, const std::vector<Range>& holds);
  std::vector<Range> take(int rank, std::int64_t most);
  // `rank` remembers so of a ledger before this one: what it does not name was counted; what it
  // may hold and nobody else does, it holds.
  void recall(int rank, const std::vector<Range>& uncounted, const std::vector<Range>& holds);
  // Free or held, ascending.
  std::vector<Range> uncounted() const;

 private:
  std::int64_t count_;
  std::int64_t left_ = 0;
  RangeSet free_;
  std::set<int> recalling_;       // ranks that may count again what they had counted before, once
  std::map<int, RangeSet> held_;  // by rank
};

class SupplyDesk {
 public:
  struct Answer {
    int rank;
    Message message;
  };
  // Answers `message`, a request on the supply's lane, and those who waited for what it frees. A
  // rank that asks no longer waits for what it asked before.
  std::vector<Answer> request(int rank, const Message& message);
  // What `rank` remembers of supply `name`, as the desk of a controller before this one had it.
  void recall(int rank, const std::string& name, const Recollection::Supply& supply);
  // `rank` is dead or has left.
  std::vector<Answer> gone(int rank);

 private:
  struct Supply {
    SupplyLedger ledger;
    std::map<int, std::int64_t> waiting;  // who wants how many, by rank
    bool whole = true;                    // false: it could not be recalled
  };

  Message open(int rank, const Message& message);
  void take(int rank, const Message& message, Supply& supply, std::vector<Answer>& answers);
  static void serve(Supply& supply, std::vector<Answer>& answers);

  std::map<std::string, Supply> supplies_;
  std::map<std::string, int> opened_by_;
};

}  // namespace motley
