#include "moe/program/progress.h"

namespace motley::moe {

Progress::Progress(const Program& program)
    : program_(&program), waits_(program.ops.size()), next_(program.ops.size()) {
  check(program);
  for (int op = 0; op < std::ssize(program.ops); ++op) {
    const auto lane = static_cast<std::size_t>(at(op).lane);
    ++left_[lane];
    waits_[static_cast<std::size_t>(op)] = at(op).after.size();
    for (const int before : at(op).after) next_[static_cast<std::size_t>(before)].push_back(op);
    if (at(op).after.empty() && !talks(at(op).lane)) ready_[lane].insert({-at(op).priority, op});
  }
  for (const Lane lane : {Lane::kIntraHost, Lane::kInterHost}) {
    fixed_[static_cast<std::size_t>(lane)] = fixed_order(program, lane);
  }
}

std::optional<int> Progress::take(Lane lane) {
  const auto i = static_cast<std::size_t>(lane);
  int op = 0;
  if (talks(lane)) {
    if (position_[i] == fixed_[i].size()) return std::nullopt;
    op = fixed_[i][position_[i]];
    if (waits_[static_cast<std::size_t>(op)] > 0) return std::nullopt;
    ++position_[i];
  } else {
    if (ready_[i].empty()) return std::nullopt;
    op = ready_[i].begin()->second;
    ready_[i].erase(ready_[i].begin());
  }
  --left_[i];
  return op;
}

void Progress::end(int op) {
  ++ended_;
  for (const int then : next_[static_cast<std::size_t>(op)]) {
    if (--waits_[static_cast<std::size_t>(then)] > 0 || talks(at(then).lane)) continue;
    ready_[static_cast<std::size_t>(at(then).lane)].insert({-at(then).priority, then});
  }
}

}  // namespace motley::moe
