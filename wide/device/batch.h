// wide/device/batch.h: a batch of rows as kernels want it: by sample, features in the order of
// slots (or, for models that look at fields, of fields), so that what is hot lies in front, as
// slots are numbered by frequency; and by feature, for updates without atomics.
//
// By feature: a segment is the edges of one slot, in the order of rows. Segments of more than
// kPiece edges (hot ones) come first and are cut into pieces, always at the same places; then the
// others (cold ones). Both parts are in the order of slots.
//
// By feature in windows of rows, for the flow: hot slots alone, segments of each window on its own,
// so that each hot slot's gradient of a window has one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/view.h"
#include "wide/samples.h"

namespace motley::wide {

inline constexpr std::uint32_t kPiece = 128;

// Pointers into one block of memory, of the host or a device.
struct BatchArrays {
  // By sample: row r has the edges [row_begin[r], row_begin[r + 1]).
  const std::uint32_t* row_begin = nullptr;  // [rows + 1]
  const std::uint32_t* slots = nullptr;      // [edges]
  const float* values = nullptr;             // [edges]; uniform: [rows]
  const std::uint16_t* fields = nullptr;     // [edges], or null
  const float* labels = nullptr;             // [rows]
  const float* weights = nullptr;            // [rows], or null: all 1
  // By feature, where that was asked for.
  const std::uint32_t* segment_slot = nullptr;   // [segments]
  const std::uint32_t* segment_begin = nullptr;  // [segments + 1], in the edges below
  const std::uint32_t* piece_begin = nullptr;    // [long_segments + 1], in pieces
  const std::uint32_t* piece_edge = nullptr;     // [pieces + 1], in the edges below
  const std::uint32_t* edge_row = nullptr;       // [edges]
  const float* edge_value = nullptr;             // [edges], or null: uniform
  const std::uint16_t* edge_field = nullptr;     // [edges], or null
  // In windows: their segments, by segment_slot, segment_begin, edge_row (in the window),
  // edge_value.
  const std::uint32_t* window_segment = nullptr;  // [windows + 1], or null
  std::uint32_t window_rows = 0;
  std::uint32_t rows = 0;
  std::uint32_t edges = 0;
  std::uint32_t segments = 0;
  std::uint32_t long_segments = 0;
  std::uint32_t pieces = 0;
  bool uniform = false;  // all edges of a row have one value
};

// Rows [first, first + n) of a batch by sample; of one with windows, `first` is where one begins.
BatchArrays part_of(BatchArrays batch, std::uint32_t first, std::uint32_t n) noexcept;

enum class Sides : std::uint8_t { kBySample, kBoth };
// Slots below `hot` by feature in windows of so many rows, beside a batch by sample; 0: none.
struct Windows {
  std::uint32_t rows = 0;
  std::uint32_t hot = 0;
};

// Makes batches; keeps what memory it needs for the next one.
class BatchMaker {
 public:
  BatchMaker(const Samples& samples, std::size_t slots, Sides sides, const Windows& windows = {});

  // Lays out `rows`; returns the bytes that they need, a multiple of 16. Throws kInvalid for more
  // than 2^32 - 1 edges.
  std::size_t make(std::span<const std::uint64_t> rows);
  // Copies what was made to `to`, of so many bytes.
  void write(std::byte* to) const;
  // The arrays, were they written to `at`.
  BatchArrays arrays(const std::byte* at) const noexcept;

 private:
  struct Edge {
    std::uint32_t slot;
    std::uint16_t field;
    float value;
  };
  void add_row(std::uint64_t row, std::vector<Edge>& edges);
  void make_segments();
  void make_windows();
  void make_window(std::uint32_t first, std::uint32_t end);
  // Calls body(array, pointer in BatchArrays) for each array, in the order in which they lie.
  template <class Body>
  void for_arrays(Body body) const;

  const Samples& samples_;
  bool by_feature_;
  Windows windows_;
  std::vector<std::uint32_t> row_begin_, slots_;
  std::vector<float> values_, labels_, weights_;
  std::vector<std::uint16_t> fields_;
  std::vector<std::uint32_t> segment_slot_, segment_begin_, piece_begin_, piece_edge_, edge_row_;
  std::vector<std::uint32_t> window_segment_, used_;
  std::vector<float> edge_value_;
  std::vector<std::uint16_t> edge_field_;
  std::vector<std::uint32_t> count_;  // of each slot; zeros between batches
};

}  // namespace motley::wide
