#include "comm/control/supply_desk.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/error.h"

namespace motley {
namespace {

Message error(ErrorCode code, std::string why) {
  return {.type = MessageType::kError,
          .number = static_cast<std::int64_t>(code),
          .value = std::move(why)};
}

Message grant(const SupplyLedger& ledger, const std::vector<Range>& taken) {
  if (taken.size() > kMaxRanges) {
    return error(ErrorCode::kUnavailable,
                 fmt::format("the supply is in {} pieces; a message holds {}. Take longer parts.",
                             taken.size(), kMaxRanges));
  }
  std::vector<Range> uncounted = ledger.uncounted();
  if (taken.size() + uncounted.size() > kMaxRanges) uncounted.clear();
  return {.type = MessageType::kValue,
          .number = ledger.left(),
          .value = encode_ranges({taken, uncounted})};
}

}  // namespace

SupplyLedger::SupplyLedger(std::int64_t count, const std::vector<Range>& uncounted)
    : count_(count) {
  for (const Range& range : uncounted) free_.add(range);
  left_ = free_.count();
}

bool SupplyLedger::counted(int rank, const std::vector<Range>& ranges) {
  RangeSet held = held_[rank];
  const bool again = recalling_.erase(rank) > 0;
  for (const Range& range : ranges) {
    if (again) {
      for (const Range& part : held.common(range)) held.remove(part);
    } else if (!held.remove(range)) {
      return false;
    }
  }
  left_ -= held_[rank].count() - held.count();
  held_[rank] = std::move(held);
  return true;
}

void SupplyLedger::keep(int rank, const std::vector<Range>& holds) {
  RangeSet lost = std::move(held_[rank]);
  RangeSet kept;
  for (const Range& range : holds) {
    if (lost.remove(range)) kept.add(range);
  }
  for (const Range& range : lost.ranges()) free_.add(range);
  if (kept.count() == 0) {
    held_.erase(rank);
  } else {
    held_[rank] = std::move(kept);
  }
}

void SupplyLedger::recall(int rank, const std::vector<Range>& uncounted,
                          const std::vector<Range>& holds) {
  const auto keep = [&uncounted](const RangeSet& from) {
    RangeSet kept;
    for (const Range& range : uncounted) {
      for (const Range& part : from.common(range)) kept.add(part);
    }
    return kept;
  };
  free_ = keep(free_);
  for (auto& [each, held] : held_) held = keep(held);
  for (const Range& range : holds) {
    for (const Range& part : free_.common(range)) {
      free_.remove(part);
      held_[rank].add(part);
    }
  }
  recalling_.insert(rank);
  left_ = free_.count();
  for (const auto& [each, held] : held_) left_ += held.count();
}

std::vector<Range> SupplyLedger::take(int rank, std::int64_t most) {
  const std::vector<Range> taken = free_.take(most);
  for (const Range& range : taken) held_[rank].add(range);
  return taken;
}

std::vector<Range> SupplyLedger::uncounted() const {
  RangeSet all = free_;
  for (const auto& [rank, held] : held_) {
    for (const Range& range : held.ranges()) all.add(range);
  }
  return all.ranges();
}

std::vector<SupplyDesk::Answer> SupplyDesk::request(int rank, const Message& message) {
  for (auto& [name, supply] : supplies_) supply.waiting.erase(rank);
  std::vector<Answer> answers;
  if (message.type == MessageType::kSupplyOpen) {
    answers.push_back({rank, open(rank, message)});
    return answers;
  }
  const auto found = supplies_.find(message.key);
  if (found == supplies_.end()) {
    answers.push_back(
        {rank, error(ErrorCode::kInvalid,
                     fmt::format("the controller has no supply \"{}\". It was started anew: open "
                                 "the supply again.",
                                 message.key))});
    return answers;
  }
  if (!found->second.whole) {
    answers.push_back(
        {rank, error(ErrorCode::kUnavailable,
                     fmt::format("supply \"{}\" was in too many pieces for the ranks to remember, "
                                 "and the controller was started anew. Open another, of what is "
                                 "not counted.",
                                 message.key))});
    return answers;
  }
  take(rank, message, found->second, answers);
  return answers;
}

// Every rank names the count; what is left says the first.
Message SupplyDesk::open(int rank, const Message& message) {
  const auto found = supplies_.find(message.key);
  if (found != supplies_.end()) {
    const std::int64_t count = found->second.ledger.count();
    if (count == message.number) return {.type = MessageType::kOk};
    return error(ErrorCode::kMismatch,
                 fmt::format("supply \"{}\" has {} numbers here, {} at rank {}. All ranks must "
                             "pass the same count.",
                             message.key, message.number, count, opened_by_[message.key]));
  }
  const auto lists = decode_ranges(message.value, 1, message.number);
  if (message.number < 0 || lists.empty()) {
    return error(ErrorCode::kInvalid,
                 fmt::format("supply \"{}\": what is left is no list of ranges within [0, {}).",
                             message.key, message.number));
  }
  supplies_.emplace(message.key, Supply{SupplyLedger(message.number, lists.front()), {}});
  opened_by_[message.key] = rank;
  return {.type = MessageType::kOk};
}

void SupplyDesk::take(int rank, const Message& message, Supply& supply,
                      std::vector<Answer>& answers) {
  SupplyLedger& ledger = supply.ledger;
  const auto lists = decode_ranges(message.value, 2, ledger.count());
  if (lists.empty() || !ledger.counted(rank, lists[0])) {
    answers.push_back({rank, error(ErrorCode::kInvalid,
                                   fmt::format("supply \"{}\": rank {} counts numbers that it was "
                                               "not given, or has counted or given back.",
                                               message.key, rank))});
    return;
  }
  ledger.keep(rank, lists[1]);
  if (message.type == MessageType::kSupplyLeft) {
    answers.push_back({rank, grant(ledger, ledger.uncounted())});
  } else if (message.number <= 0) {
    answers.push_back({rank, grant(ledger, {})});
  } else {
    supply.waiting[rank] = message.number;
  }
  serve(supply, answers);
}

// Answers those who wait, as far as there is something to tell.
void SupplyDesk::serve(Supply& supply, std::vector<Answer>& answers) {
  for (auto it = supply.waiting.begin(); it != supply.waiting.end();) {
    const std::vector<Range> taken = supply.ledger.take(it->first, it->second);
    if (taken.empty() && supply.ledger.left() > 0) return;
    answers.push_back({it->first, grant(supply.ledger, taken)});
    it = supply.waiting.erase(it);
  }
}

void SupplyDesk::recall(int rank, const std::string& name, const Recollection::Supply& supply) {
  const auto [found, is_new] =
      supplies_.try_emplace(name, Supply{SupplyLedger(supply.count, supply.uncounted), {}});
  if (is_new) opened_by_[name] = rank;
  Supply& known = found->second;
  if (known.ledger.count() != supply.count || !supply.whole) {
    known.whole = false;
    return;
  }
  known.ledger.recall(rank, supply.uncounted, supply.holds);
}

std::vector<SupplyDesk::Answer> SupplyDesk::gone(int rank) {
  std::vector<Answer> answers;
  for (auto& [name, supply] : supplies_) {
    supply.waiting.erase(rank);
    supply.ledger.keep(rank, {});
    serve(supply, answers);
  }
  return answers;
}

}  // namespace motley
