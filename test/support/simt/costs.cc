#include "test/support/simt/costs.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace motley::simt {
namespace {

constexpr std::uintptr_t kSector = 32;
constexpr std::uintptr_t kBanks = 32;
constexpr std::uintptr_t kWord = 4;

using Interval = std::pair<std::uintptr_t, std::uintptr_t>;

Traffic traffic_of(std::vector<Interval> touched) {
  std::ranges::sort(touched);
  Traffic traffic{.instructions = 1};
  std::uintptr_t end = 0, next_sector = 0;
  for (const auto& [first, last] : touched) {
    const std::uintptr_t fresh = std::max(first, end);
    if (last > fresh) traffic.bytes += last - fresh;
    end = std::max(end, last);
    const std::uintptr_t sector = std::max(first / kSector, next_sector);
    const std::uintptr_t after = (last - 1) / kSector + 1;
    if (after > sector) traffic.sectors += after - sector;
    next_sector = std::max(next_sector, after);
  }
  traffic.minimum = (traffic.bytes + kSector - 1) / kSector;
  return traffic;
}

// Rounds in which a bank gives each of the `words` that lanes want of it.
std::size_t rounds(std::vector<std::uintptr_t>& words) {
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::array<std::size_t, kBanks> wanted{};
  for (const std::uintptr_t word : words) ++wanted[word % kBanks];
  return *std::ranges::max_element(wanted);
}

}  // namespace

void Costs::block_begins(unsigned threads) {
  warps_.assign((threads + kLanes - 1) / kLanes, {});
  shared_atomics_.clear();
  ++sums_.blocks;
}

void Costs::touch(const Thread& thread, const Access& access, Space space) {
  if (access.kind == Access::Kind::kAtomic) {
    ++sums_.atomic_operations;
    ++(space == Space::kShared ? shared_atomics_ : global_atomics_)[access.at];
  }
  const auto key = reinterpret_cast<std::uintptr_t>(access.place) * 2 + (space == Space::kShared);
  Place& place = warps_[thread.rank / kLanes].places[key];
  place.kind = access.kind;
  place.space = space;
  // Behind a barrier lanes are side by side again, however often each was here before.
  if (std::exchange(place.barriers, barriers_) != barriers_)
    place.times.fill(static_cast<std::uint32_t>(place.instructions.size()));
  const std::size_t time = place.times[thread.lane]++;
  if (place.instructions.size() <= time) place.instructions.resize(time + 1);
  Instruction& instruction = place.instructions[time];
  instruction.at[thread.lane] = reinterpret_cast<std::uintptr_t>(access.at);
  instruction.lanes |= 1u << thread.lane;
  instruction.bytes = static_cast<std::uint32_t>(access.bytes);
}

void Costs::enter(const Thread& thread, const void* place) {
  WarpCosts& warp = warps_[thread.rank / kLanes];
  const void* const before = std::exchange(warp.last[thread.lane], place);
  if (before == nullptr) return;
  Fork& fork = warp.forks[before];
  const std::size_t time = fork.times[thread.lane]++;
  if (fork.steps.size() <= time) fork.steps.resize(time + 1);
  Step& step = fork.steps[time];
  if (step.next == nullptr) step.next = place;
  if (step.next == place || step.divergent) return;
  step.divergent = true;
  ++sums_.divergent_branches;
}

void Costs::add(const Place& place, const Instruction& instruction) {
  std::vector<Interval> touched;
  std::vector<std::uintptr_t> words;
  std::size_t taken = 0;
  // Lanes whose words a round can give: 8 bytes by half warps, 16 by quarters.
  const unsigned together = std::clamp(kLanes * 4 / std::max(instruction.bytes, 1u), 1u, kLanes);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((instruction.lanes >> lane & 1) != 0) {
      const std::uintptr_t first = instruction.at[lane], last = first + instruction.bytes;
      touched.emplace_back(first, last);
      for (std::uintptr_t word = first / kWord; word * kWord < last; ++word) words.push_back(word);
    }
    if ((lane + 1) % together == 0 && !words.empty()) {
      taken += rounds(words) - 1;
      words.clear();
    }
  }
  if (place.space == Space::kShared) {
    ++sums_.shared_instructions;
    sums_.bank_conflicts += taken;
    return;
  }
  Traffic& sum = place.kind == Access::Kind::kRead    ? sums_.reads
                 : place.kind == Access::Kind::kWrite ? sums_.writes
                                                      : sums_.atomics;
  sum += traffic_of(std::move(touched));
}

void Costs::block_ends() {
  for (const WarpCosts& warp : warps_) {
    for (const auto& [key, place] : warp.places) {
      for (const Instruction& instruction : place.instructions) add(place, instruction);
    }
  }
  for (const auto& [address, count] : shared_atomics_)
    sums_.atomics_on_one_address = std::max(sums_.atomics_on_one_address, count);
}

KernelReport Costs::report() const {
  KernelReport sums = sums_;
  sums.launches = 1;
  for (const auto& [address, count] : global_atomics_)
    sums.atomics_on_one_address = std::max(sums.atomics_on_one_address, count);
  return sums;
}

}  // namespace motley::simt
