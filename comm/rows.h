// comm/rows.h: rows of elements, gathered and scattered by an index: tokens to experts and back,
// features of a batch out of a table.
//
//   gather_rows({.out = batch, .in = table, .index = features, .columns = 64});
//
//   RowCheck check(stream);                                       // the same on a device
//   gather_rows_on_device({batch, table, features, 64}, check, stream);
//   check.fetch(stream);
//   …                                                             // once the stream is there:
//   check.verify();
#pragma once

#include "comm/device.h"
#include "comm/view.h"

namespace motley {

// Rows of `columns` elements, of any dtype, one after another.
//   index  [m] int32 or int64: kNoRow, or the number of a row of `in` (gather) or `out` (scatter)
// `in` and `out` are of the same dtype and do not overlap.
struct RowMove {
  View out;
  ConstView in;
  ConstView index;
  std::size_t columns = 1;
};
inline constexpr int kNoRow = -1;

// out[i] = in[index[i]], out [m, columns]; rows of kNoRow become zero.
//   errors  kInvalid, with the first index that names no row, before anything is written
void gather_rows(const RowMove& move);

// out[index[i]] = in[i], in [m, columns]; rows of kNoRow are left out. No row is named twice.
//   errors  as above
void scatter_rows(const RowMove& move);

// Where kernels note an index that names no row: they leave such rows out (gather: zero) and go on.
// Belongs to one stream at a time.
class RowCheck {
 public:
  explicit RowCheck(StreamRef stream);

  // Brings the note to the host, in stream order, and clears it.
  void fetch(StreamRef stream);
  // Throws kInvalid if an index named no row before the last fetch(), with one of them, where it
  // stood, how many rows there are and how many such there were. Call it when the stream has got
  // behind that fetch().
  void verify() const;

  // int64 [4] in device memory: how many, position of one of them, that index, rows.
  View note() const noexcept { return note_.view(4, DType::kInt64); }

 private:
  DeviceBuffer note_;
  PinnedBuffer host_;  // [0, 4): as fetched; [4, 8): zeros
};

// The same on device memory, in stream order: row by row in words of up to 16 bytes, as far as
// addresses and `columns` are multiples of them. Which row stays that is named twice is not said.
void gather_rows_on_device(const RowMove& move, RowCheck& check, StreamRef stream);
void scatter_rows_on_device(const RowMove& move, RowCheck& check, StreamRef stream);

}  // namespace motley
