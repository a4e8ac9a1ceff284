// comm/algorithm/contents.h: what each chunk holds before a call and must hold after it, and which
// chunks are equally large: what check.h judges by.
#pragma once

#include <string>

#include "comm/algorithm/schedule.h"
#include "comm/algorithm/symbols.h"
#include "comm/call_kind.h"

namespace motley {

class Contents {
 public:
  // Of a group of `size` ranks; `shares`: chunks of the buffer that is cut, if one is.
  Contents(CallKind kind, int size, int root, int shares);

  Symbols& symbols() noexcept { return symbols_; }
  // The symbol of a chunk that is no scratch, at the start.
  int initial(int rank, int chunk) const;
  // Chunks, no scratch, are surely as large as each other if this is the same.
  int size_class(int rank, int chunk) const;
  // Whether a step may write the chunk.
  bool writable(int rank, int chunk) const { return place(rank, chunk).where != Place::kIn; }
  // What is wrong with `symbol` at the end; empty if nothing is. `first`: rank 0's in the chunk.
  std::string flaw(int rank, int chunk, int symbol, int first) const;

 private:
  Shape shape(int rank) const noexcept { return {.rank = rank, .size = size_, .root = root_}; }
  Place place(int rank, int chunk) const noexcept { return place_of(kind_, shape(rank), chunk); }
  std::string sum_flaw(int symbol, int block) const;
  std::string copy_flaw(int symbol, int from, int block) const;

  CallKind kind_;
  int size_;
  int root_;
  Symbols symbols_;
};

}  // namespace motley
