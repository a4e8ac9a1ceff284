// test/support/simt/fault.h: what a kernel does that a device would not forgive.
#pragma once

#include <iosfwd>
#include <string>

#include "test/support/simt/types.h"

namespace motley::simt {

enum class FaultKind {
  kUninitialized,  // reads shared memory that no thread of this block has written
  kRace,           // two threads touch the same bytes, nothing orders them, one of them writes
  kOutOfBounds,    // touches what is neither a buffer nor shared memory of the block
  kMisaligned,     // loads or stores a word at an address that is no multiple of its size
  kBarrier,        // not all threads of a block reach the same barrier
  kExchange,       // lanes of a warp exchange values, but disagree on who takes part
};

const char* name(FaultKind kind) noexcept;

struct Fault {
  FaultKind kind = FaultKind::kRace;
  std::string kernel;
  uint3 block{};
  uint3 thread{};
  const void* address = nullptr;  // null where memory is not what it is about
  std::string place;              // function and offset, as in a disassembly
  std::string what;               // one sentence, with both threads and the numbers
};

// "race: kernel block (0, 0, 0) thread (1, 0, 0) at place: what"
std::ostream& operator<<(std::ostream& out, const Fault& fault);

}  // namespace motley::simt
