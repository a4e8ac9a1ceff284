// comm/executor/buffers.h: the memory of one call: reads and writes its chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/algorithm/schedule.h"
#include "comm/executor/arena.h"
#include "comm/executor/call.h"
#include "comm/executor/layout.h"
#include "comm/view.h"

namespace motley {

// A piece under way, and the memory that it works in.
struct PieceMemory {
  std::uint32_t piece = 0;
  Arena::Block memory;
};

class Buffers {
 public:
  // Keeps references.
  Buffers(Arena& arena, const Call& call, const Shape& shape, const Schedule& schedule,
          std::size_t message_bytes);

  const Layout& layout() const noexcept { return layout_; }

  // Brings what this rank has to where it is worked on; takes memory, if `at` has none yet.
  void begin(PieceMemory& at);
  // Brings results to where the user wants them.
  void finish(const PieceMemory& at);

  std::size_t message_bytes(std::uint32_t piece, const Step& step) const;
  // What a send sends: where it lies, or gathered in `packed`.
  ConstBytes read(const PieceMemory& at, const Step& step, Arena::Block& packed);
  // A receive takes effect.
  void write(const PieceMemory& at, const Step& step, ConstBytes data);
  // A copy or reduction within the rank.
  void move(const PieceMemory& at, const Step& step);

 private:
  View view(const PieceMemory& at, const Region& region) const noexcept;
  void bring_in(const PieceMemory& at, const Region& to, const Region& from);
  void bring_out(const PieceMemory& at, const Region& to, const Region& from);

  Arena& arena_;
  const Call& call_;
  const Shape& shape_;
  const Schedule& schedule_;
  DType work_;  // what chunks are worked on in
  Layout layout_;
};

}  // namespace motley
