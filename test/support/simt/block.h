// test/support/simt/block.h: runs the threads of one block on strands, which switch only where
// they meet: at barriers of the block, and where lanes of a warp exchange values.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "test/support/simt/fault.h"
#include "test/support/simt/launch.h"
#include "test/support/simt/strand.h"

namespace motley::simt {

inline constexpr unsigned kLanes = 32;

class BlockRunner;
class Observer;
struct Thread;

// The lanes of a warp, by number; null where the block has none.
using Warp = std::array<Thread*, kLanes>;

// What lanes that meet make of what each brought: sets `result` of those in `mask`.
using Combine = void (*)(const Warp& warp, std::uint32_t mask);

struct Thread {
  enum class State { kReady, kAtBarrier, kAtExchange, kCoalescing, kReturned };

  uint3 index{};
  unsigned rank = 0;  // in the block
  unsigned lane = 0;
  Warp* warp = nullptr;
  State state = State::kReady;

  const void* place = nullptr;  // where it last met others
  // At an exchange.
  std::uint32_t mask = 0;
  Combine combine = nullptr;
  std::uint64_t value = 0;
  std::uint32_t argument = 0;
  std::uint64_t result = 0;

  // At a barrier: whether a predicate holds here; then, for how many threads it did.
  bool predicate = false;
  unsigned count = 0;

  Strand strand;
  BlockRunner* runner = nullptr;
};

// Why a block cannot go on.
struct GivenUp {
  FaultKind kind = FaultKind::kBarrier;
  const Thread* thread = nullptr;
  const void* address = nullptr;
  const void* place = nullptr;
  std::string what;
};

// For one block after another, on one thread of the host at a time.
class BlockRunner {
 public:
  // Runs `call` once for each thread. Throws kInvalid if the block cannot go on. `observer` may be
  // null.
  void run(const Shape& shape, uint3 block, const Call& call, Observer* observer);
  // Called, outside all threads of the block, each time that they have met at a barrier.
  void set_on_met(std::function<void()> on_met) { on_met_ = std::move(on_met); }

  // For threads of the block only. `place` is the next instruction of the kernel.
  std::uint64_t exchange(Thread& thread, std::uint32_t mask, Combine combine, std::uint64_t value,
                         std::uint32_t argument, const void* place);
  unsigned barrier(Thread& thread, bool predicate, const void* place);
  std::uint32_t coalesce(Thread& thread, const void* place);
  // Ends the block: run() throws. What lies on the stacks is not destroyed.
  [[noreturn]] void give_up(GivenUp why);

  const Shape& shape() const noexcept { return shape_; }
  uint3 block() const noexcept { return block_; }
  const Call& call() const noexcept { return *call_; }
  Observer* observer() const noexcept { return observer_; }
  // Of a thread by its rank, in [0, size()).
  const Thread& thread(unsigned rank) const { return *threads_[rank]; }
  unsigned size() const noexcept { return size_; }

 private:
  static void enter(void* thread);
  void place_threads();
  void run_ready();
  bool all_there(const Thread& last) const;
  void leave_barrier();
  bool release_coalescing();
  GivenUp why_stuck() const;

  Shape shape_;
  uint3 block_{};
  const Call* call_ = nullptr;
  std::vector<std::unique_ptr<Thread>> threads_;  // as many as the largest block had
  std::vector<Warp> warps_;
  std::deque<Thread*> ready_;
  unsigned size_ = 0;
  unsigned alive_ = 0;
  unsigned at_barrier_ = 0;
  bool stopped_ = false;
  bool met_ = false;  // since on_met_ was called
  std::function<void()> on_met_;
  GivenUp given_up_;
  Observer* observer_ = nullptr;
};

// The thread of a kernel that runs on this thread of the host, or null.
Thread* current() noexcept;
void set_current(Thread* thread) noexcept;

}  // namespace motley::simt
