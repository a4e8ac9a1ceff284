// comm/transport/nccl_reduction.h: a reduction of device memory as sends and receives.
//
// Two steps, each a single exchange: every member receives all terms of its slice and adds them in
// the order of members; then the sums go to whoever is to have them. The buffer is cut into pieces
// whose terms fit into the scratch. Terms meet as `ordered` schedules let them meet on the CPU, so
// the bits are the same: 16-bit floats whose rounding counts are added in float32.
//   elements sent per rank  2(p-1)/p n; those of a weighted sum of 16-bit floats twice as long
#pragma once

#include <cstddef>
#include <vector>

#include "comm/transport/nccl_part.h"
#include "comm/view.h"

namespace motley {

class NcclReduction {
 public:
  explicit NcclReduction(NcclPart& part);
  void run();

 private:
  void run_piece(std::size_t first);
  std::vector<ConstView> collect(std::size_t first);
  View result_of(std::size_t first);
  void add_up(View out, const std::vector<ConstView>& terms);
  void deliver(std::size_t first, View mine);

  // Of `view`, what `member` adds up in the piece that begins at `first`.
  template <class View>
  View slice(const View& view, int member, std::size_t first) const noexcept;
  // Memory for what comes from `member`, and for what goes there.
  View term_of(int member, std::size_t count);
  View scaled_for(int member, std::size_t count);

  NcclPart& part_;
  const TeamCall& call_;
  bool by_blocks_;         // reduce_scatter: members' slices are parts of their blocks
  bool scales_;            // terms are multiplied by the weight before they leave
  DType wire_;             // what terms travel in
  DType work_;             // what they are added in
  std::size_t total_ = 0;  // elements: of the buffer, or of a block
  std::size_t each_ = 0;   // elements of a slice, at most
  // Bytes of the scratch: terms, then scaled ones, then two that are added in another type, then a
  // result that this rank does not keep.
  std::size_t term_bytes_ = 0;
  std::size_t work_bytes_ = 0;
  std::size_t work_first_ = 0;
  std::size_t result_first_ = 0;
};

}  // namespace motley
