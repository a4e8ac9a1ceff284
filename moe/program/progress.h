// moe/program/progress.h: how far a program has come, and what each of its lanes does next: the
// rules of program.h, for executor and simulator alike.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "moe/program.h"

namespace motley::moe {

class Progress {
 public:
  // Checks the program, which must outlive it.
  explicit Progress(const Program& program);

  // What `lane`, which is free, does next; nullopt while it must wait, or if it has done all.
  std::optional<int> take(Lane lane);
  // `op`, which was taken, has ended.
  void end(int op);

  bool has_work(Lane lane) const noexcept { return left_[static_cast<std::size_t>(lane)] > 0; }
  bool done() const noexcept { return ended_ == program_->ops.size(); }

 private:
  const Op& at(int op) const { return program_->ops[static_cast<std::size_t>(op)]; }
  // By priority, then position.
  using Ready = std::set<std::pair<int, int>>;

  const Program* program_;
  std::vector<std::size_t> waits_;              // of each operation, for how many
  std::vector<std::vector<int>> next_;          // those that are after it
  std::array<Ready, kLanes> ready_;             // of lanes that choose
  std::array<std::vector<int>, kLanes> fixed_;  // of those that do not: their order
  std::array<std::size_t, kLanes> position_{};  // in it
  std::array<std::size_t, kLanes> left_{};      // operations not taken
  std::size_t ended_ = 0;
};

}  // namespace motley::moe
