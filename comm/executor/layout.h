// comm/executor/layout.h: where the chunks of a call lie, as numbers; no memory is touched.
//
// A call is cut into pieces whose messages have at most a given size; each piece runs the whole
// schedule. Where one buffer is cut into shares (Place::kShare), a piece is a range of it, and its
// chunks are shares of that range. Else piece q is the q-th segment of every block. Where blocks
// differ in size, some have no q-th segment: both ends of their message know that, and neither
// sends nor expects it, but for q = 0.
// Chunks that cannot be worked on where they are, as those in device memory cannot, and scratch,
// lie in memory of the piece's lane.
// A family with a `rest` (algorithm/schedule.h) has another first piece: the heads of all blocks,
// each with the block's count in front and padded to one length, all in the lane, scratch too. The
// other pieces are segments of what blocks have beyond that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/algorithm/schedule.h"
#include "comm/dtype.h"
#include "comm/executor/call.h"

namespace motley {

// Elements [first, first + count).
struct Region {
  enum Where : std::uint8_t { kIn, kOut, kLane };
  Where where = kOut;
  std::size_t first = 0;
  std::size_t count = 0;
  friend bool operator==(const Region&, const Region&) = default;
};

// Whether the first piece has the heads of blocks.
enum class Heads : std::uint8_t { kNone, kFirst };

class Layout {
 public:
  // Messages have at most `message_bytes`, if one element a chunk fits. Keeps references.
  // `heads`: whether `schedule` moves those.
  Layout(const Call& call, const Shape& shape, const Schedule& schedule, DType work,
         std::size_t message_bytes, Heads heads = Heads::kNone);

  static constexpr std::size_t kHeadBytes = 256;  // of a block, at most
  static constexpr std::size_t kCountBytes = 8;   // in front of a head

  std::uint32_t pieces() const noexcept { return pieces_; }
  // Elements of memory that a lane needs, of the type that is worked in.
  std::size_t lane_elements() const noexcept { return lane_elements_; }
  // Elements of them that are not scratch.
  std::size_t staged_elements() const noexcept { return scratch_base_; }
  // Whether chunks of `in`, of `out` or the buffer that is cut are worked on in the lane.
  bool stages(Place::Where where) const noexcept { return staged_[where]; }
  bool is_cut() const noexcept { return cut_; }
  // Whether a piece is that of the heads.
  bool is_heads(std::uint32_t piece) const noexcept { return head_ != 0 && piece == 0; }

  // Where a piece's part of a chunk is worked on. O(1).
  Region at(std::uint32_t piece, int chunk) const;
  // Where a piece's part of a block of `in` or `out`, or of a buffer that is cut, lies for the
  // user.
  Region home(std::uint32_t piece, const Place& place) const;
  // A piece's part of the buffer that is cut, where it is worked on.
  Region cut(std::uint32_t piece) const;
  // Elements of all pieces together of a chunk.
  std::size_t total(int chunk) const;

  // Calls action(region) for the regions of chunks [first, first + count) of a piece, in order,
  // joined where they lie together; for none that is empty.
  template <class Action>
  void each_region(std::uint32_t piece, int first, int count, Action&& action) const {
    Region run;
    if (cut_ && count > 0 && first + count <= schedule_.first_scratch()) {
      run = at(piece, first);
      const Region last = at(piece, first + count - 1);
      run.count = last.first + last.count - run.first;
      count = 0;
    }
    for (int chunk = first; chunk < first + count; ++chunk) {
      const Region next = at(piece, chunk);
      if (next.count == 0) continue;
      if (run.count != 0 && run.where == next.where && run.first + run.count == next.first) {
        run.count += next.count;
        continue;
      }
      if (run.count != 0) action(run);
      run = next;
    }
    if (run.count != 0) action(run);
  }

 private:
  void cut_into_pieces(std::size_t segment);
  void cut_blocks(std::size_t segment);
  void cut_heads(std::size_t message_bytes, std::size_t element_bytes);
  std::size_t longest_block() const;
  std::size_t staged_blocks(Place::Where where) const;
  std::size_t block_count(const Place& place) const;
  std::size_t block_first(const Place& place) const;
  std::size_t share_end(std::size_t count, int chunk) const;

  const Call& call_;
  const Shape& shape_;
  const Schedule& schedule_;
  bool cut_;
  bool staged_[3] = {};           // by Place::Where
  std::size_t n_ = 0;             // of the buffer that is cut, or of each block, if all are equal
  std::size_t piece_size_ = 0;    // elements of a full piece, or of a full segment of a block
  std::size_t stride_ = 0;        // between chunks in a lane
  std::size_t head_ = 0;          // of a block, with what is in front; 0: there are no heads
  std::size_t front_ = 0;         // of a head, where its block's count is
  std::size_t in_blocks_ = 0;     // in a lane, before those of `out`
  std::size_t scratch_base_ = 0;  // where scratch begins in a lane
  std::size_t lane_elements_ = 0;
  std::uint32_t pieces_ = 1;
  std::vector<std::size_t> in_first_;     // by block, if they differ in size
  std::vector<std::size_t> out_first_;    // likewise
  std::vector<std::uint64_t> share_sum_;  // of the weights before each chunk, if there are any
};

}  // namespace motley
