// The emulator's search for races against one that keeps every access and full vector clocks: over
// random accesses and meetings of two warps, both find the first race at the same access.
#include "test/support/simt/races.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <vector>

namespace motley::simt {
namespace {

constexpr unsigned kThreads = 2 * kLanes;
constexpr unsigned kBytes = 3;

class EveryAccess {
 public:
  EveryAccess() {
    for (unsigned thread = 0; thread < kThreads; ++thread) clocks_[thread][thread] = 1;
  }

  void meet(const std::vector<unsigned>& threads) {
    std::array<int, kThreads> all{};
    for (const unsigned thread : threads) {
      for (unsigned i = 0; i < kThreads; ++i) all[i] = std::max(all[i], clocks_[thread][i]);
    }
    for (const unsigned thread : threads) {
      clocks_[thread] = all;
      ++clocks_[thread][thread];
    }
  }

  // Whether the access races with an earlier one.
  bool touch(unsigned thread, unsigned byte, Access::Kind kind) {
    bool race = false;
    for (const Done& done : done_[byte]) {
      const bool conflict = (done.kind != Access::Kind::kRead || kind != Access::Kind::kRead) &&
                            !(done.kind == Access::Kind::kAtomic && kind == Access::Kind::kAtomic);
      race |= conflict && clocks_[thread][done.thread] < done.clock;
    }
    done_[byte].push_back({thread, clocks_[thread][thread], kind});
    return race;
  }

 private:
  struct Done {
    unsigned thread;
    int clock;
    Access::Kind kind;
  };
  std::array<std::array<int, kThreads>, kThreads> clocks_{};
  std::array<std::vector<Done>, kBytes> done_;
};

class Pair {
 public:
  explicit Pair(std::uint64_t seed) : random_(seed) {
    for (unsigned rank = 0; rank < kThreads; ++rank) {
      threads_.push_back(std::make_unique<Thread>());
      threads_[rank]->rank = rank;
      threads_[rank]->lane = rank % kLanes;
      warps_[rank / kLanes][rank % kLanes] = threads_[rank].get();
    }
    races_.block_begins(kThreads);
  }

  // Whether both found a race, or neither. `found` is what they agree on.
  bool step(bool& found) {
    found = false;
    const auto choice = random_() % 20;
    if (choice == 0) {
      std::vector<unsigned> all;
      for (unsigned thread = 0; thread < kThreads; ++thread) all.push_back(thread);
      races_.block_met();
      every_.meet(all);
      return true;
    }
    if (choice < 8) {
      meet_in_a_warp();
      return true;
    }
    // Few threads, so that they often touch the same byte in turn.
    const unsigned thread = static_cast<unsigned>(random_() % 4 * 11);
    const unsigned byte = static_cast<unsigned>(random_() % kBytes);
    const auto kind = static_cast<Access::Kind>(random_() % 3);
    const bool ours = races_.touch(thread, {&memory_[byte], 1, kind, nullptr}).race.has_value();
    found = every_.touch(thread, byte, kind);
    return ours == found;
  }

 private:
  void meet_in_a_warp() {
    const unsigned warp = static_cast<unsigned>(random_() % 2);
    const auto mask = random_() % 2 == 0 ? ~0u : static_cast<std::uint32_t>(random_());
    std::vector<unsigned> lanes;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if ((mask >> lane & 1) != 0) lanes.push_back(warp * kLanes + lane);
    }
    races_.warp_met(warps_[warp], mask);
    every_.meet(lanes);
  }

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::array<Warp, 2> warps_{};
  std::array<std::byte, kBytes> memory_{};
  Races races_{Races::Memory::kGlobal};
  EveryAccess every_;
};

TEST(Races, AreFoundWhereEveryAccessIsKept) {
  int with_race = 0, steps = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Pair pair(seed);
    bool found = false;
    for (int step = 0; step < 200 && !found; ++step, ++steps)
      ASSERT_TRUE(pair.step(found)) << "seed " << seed << " step " << step << ", found " << found;
    with_race += found;
  }
  EXPECT_GT(with_race, 100);
  EXPECT_GT(steps, 2000);
}

}  // namespace
}  // namespace motley::simt
