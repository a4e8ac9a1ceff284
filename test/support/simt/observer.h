// test/support/simt/observer.h: what a checker is told of the threads of a block while they run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "test/support/simt/block.h"

namespace motley::simt {

// One thread touches [at, at + bytes). `place` is the next instruction of the kernel.
struct Access {
  enum class Kind { kRead, kWrite, kAtomic };
  const void* at = nullptr;
  std::size_t bytes = 0;
  Kind kind = Kind::kRead;
  const void* place = nullptr;
  std::size_t alignment = 1;  // that a device asks of `at`
};

class Observer {
 public:
  virtual ~Observer() = default;

  virtual void block_begins(BlockRunner& runner) = 0;
  virtual void block_ends(BlockRunner& runner) = 0;
  // Before it happens. Need not return: BlockRunner::give_up().
  virtual void touch(Thread& thread, const Access& access) = 0;
  // `thread` enters the part of the program that begins at `place`, without a branch inside.
  virtual void enter(Thread& thread, const void* place) = 0;
  virtual void fenced(Thread& thread) = 0;
  // The lanes in `mask` are at a __syncwarp.
  virtual void warp_met(const Warp& warp, std::uint32_t mask) = 0;
  // All threads that had not returned are at a barrier.
  virtual void block_met(BlockRunner& runner) = 0;
  virtual void gave_up(BlockRunner& runner, const GivenUp& why) = 0;
};

}  // namespace motley::simt
