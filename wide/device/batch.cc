#include "wide/device/batch.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "comm/error.h"

namespace motley::wide {
namespace {

constexpr std::size_t kAlignment = 16;
std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

BatchArrays part_of(BatchArrays batch, std::uint32_t first, std::uint32_t n) noexcept {
  batch.row_begin += first;
  batch.labels += first;
  if (batch.weights != nullptr) batch.weights += first;
  if (batch.uniform) batch.values += first;
  if (batch.window_segment != nullptr) batch.window_segment += first / batch.window_rows;
  batch.rows = n;
  return batch;
}

BatchMaker::BatchMaker(const Samples& samples, std::size_t slots, Sides sides,
                       const Windows& windows)
    : samples_(samples),
      by_feature_(sides == Sides::kBoth),
      windows_(windows),
      count_(by_feature_        ? slots
             : windows.rows > 0 ? windows.hot
                                : std::size_t{0}) {}

void BatchMaker::add_row(std::uint64_t row, std::vector<Edge>& edges) {
  const Samples& s = samples_;
  edges.clear();
  for (std::uint64_t e = s.row_begin[row]; e < s.row_begin[row + 1]; ++e) {
    const std::uint16_t field = s.fields.empty() ? std::uint16_t{0} : s.fields[e];
    edges.push_back({s.slots[e], field, s.values[s.uniform ? row : e]});
  }
  std::stable_sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return a.field != b.field ? a.field < b.field : a.slot < b.slot;
  });
  for (const Edge& edge : edges) {
    slots_.push_back(edge.slot);
    if (!s.fields.empty()) fields_.push_back(edge.field);
    if (!s.uniform) values_.push_back(edge.value);
  }
  if (s.uniform) values_.push_back(s.values[row]);
  labels_.push_back(s.labels[row]);
  if (!s.weights.empty()) weights_.push_back(s.weights[row]);
  row_begin_.push_back(static_cast<std::uint32_t>(slots_.size()));
}

std::size_t BatchMaker::make(std::span<const std::uint64_t> rows) {
  std::uint64_t edges = 0;
  for (const std::uint64_t row : rows)
    edges += samples_.row_begin[row + 1] - samples_.row_begin[row];
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (edges > kMost || rows.size() > kMost) {
    throw Error(ErrorCode::kInvalid, "wide on a device: a batch has " +
                                         std::to_string(rows.size()) + " rows with " +
                                         std::to_string(edges) + " entries, but can have " +
                                         std::to_string(kMost) + ". Use smaller batches");
  }
  row_begin_.assign(1, 0);
  for (auto* column : {&values_, &labels_, &weights_}) column->clear();
  slots_.clear();
  fields_.clear();
  std::vector<Edge> of_row;
  for (const std::uint64_t row : rows) add_row(row, of_row);
  if (by_feature_) make_segments();
  if (windows_.rows > 0) make_windows();
  std::size_t bytes = 0;
  for_arrays([&](const auto& array, auto /*pointer*/) {
    bytes += aligned(array.size() * sizeof(array[0]));
  });
  return bytes;
}

void BatchMaker::make_segments() {
  std::vector<std::uint32_t>& used = segment_slot_;
  used.clear();
  for (const std::uint32_t slot : slots_) {
    if (count_[slot]++ == 0) used.push_back(slot);
  }
  std::sort(used.begin(), used.end(), [&](std::uint32_t a, std::uint32_t b) {
    const bool long_a = count_[a] > kPiece, long_b = count_[b] > kPiece;
    return long_a != long_b ? long_a : a < b;
  });
  segment_begin_.assign(1, 0);
  piece_begin_.assign(1, 0);
  piece_edge_.clear();
  std::uint32_t begin = 0;
  for (const std::uint32_t slot : used) {
    const std::uint32_t n = count_[slot];
    if (n > kPiece) {
      for (std::uint32_t at = 0; at < n; at += kPiece) piece_edge_.push_back(begin + at);
      piece_begin_.push_back(static_cast<std::uint32_t>(piece_edge_.size()));
    }
    count_[slot] = begin;  // where its next edge goes
    begin += n;
    segment_begin_.push_back(begin);
  }
  piece_edge_.push_back(segment_begin_[piece_begin_.size() - 1]);
  edge_row_.resize(slots_.size());
  edge_value_.resize(samples_.uniform ? 0 : slots_.size());
  edge_field_.resize(fields_.size());
  for (std::uint32_t row = 0; row + 1 < row_begin_.size(); ++row) {
    for (std::uint32_t e = row_begin_[row]; e < row_begin_[row + 1]; ++e) {
      const std::uint32_t at = count_[slots_[e]]++;
      edge_row_[at] = row;
      if (!samples_.uniform) edge_value_[at] = values_[e];
      if (!fields_.empty()) edge_field_[at] = fields_[e];
    }
  }
  for (const std::uint32_t slot : used) count_[slot] = 0;
}

void BatchMaker::make_windows() {
  segment_slot_.clear();
  segment_begin_.assign(1, 0);
  window_segment_.assign(1, 0);
  edge_row_.clear();
  edge_value_.clear();
  const auto rows = static_cast<std::uint32_t>(labels_.size());
  for (std::uint32_t first = 0; first < rows; first += std::min(windows_.rows, rows - first))
    make_window(first, first + std::min(windows_.rows, rows - first));
}

void BatchMaker::make_window(std::uint32_t first, std::uint32_t end) {
  used_.clear();
  for (std::uint32_t e = row_begin_[first]; e < row_begin_[end]; ++e) {
    if (slots_[e] < windows_.hot && count_[slots_[e]]++ == 0) used_.push_back(slots_[e]);
  }
  std::sort(used_.begin(), used_.end());
  std::uint32_t begin = segment_begin_.back();
  for (const std::uint32_t slot : used_) {
    segment_slot_.push_back(slot);
    begin += std::exchange(count_[slot], begin);  // where its next edge goes
    segment_begin_.push_back(begin);
  }
  window_segment_.push_back(static_cast<std::uint32_t>(segment_slot_.size()));
  edge_row_.resize(begin);
  if (!samples_.uniform) edge_value_.resize(begin);
  for (std::uint32_t row = first; row < end; ++row) {
    for (std::uint32_t e = row_begin_[row]; e < row_begin_[row + 1]; ++e) {
      if (slots_[e] >= windows_.hot) continue;
      const std::uint32_t at = count_[slots_[e]]++;
      edge_row_[at] = row - first;
      if (!samples_.uniform) edge_value_[at] = values_[e];
    }
  }
  for (const std::uint32_t slot : used_) count_[slot] = 0;
}

template <class Body>
void BatchMaker::for_arrays(Body body) const {
  body(row_begin_, &BatchArrays::row_begin);
  body(slots_, &BatchArrays::slots);
  body(values_, &BatchArrays::values);
  body(fields_, &BatchArrays::fields);
  body(labels_, &BatchArrays::labels);
  body(weights_, &BatchArrays::weights);
  if (!by_feature_ && windows_.rows == 0) return;
  body(segment_slot_, &BatchArrays::segment_slot);
  body(segment_begin_, &BatchArrays::segment_begin);
  body(edge_row_, &BatchArrays::edge_row);
  body(edge_value_, &BatchArrays::edge_value);
  if (windows_.rows > 0) return body(window_segment_, &BatchArrays::window_segment);
  body(piece_begin_, &BatchArrays::piece_begin);
  body(piece_edge_, &BatchArrays::piece_edge);
  body(edge_field_, &BatchArrays::edge_field);
}

void BatchMaker::write(std::byte* to) const {
  for_arrays([&](const auto& array, auto /*pointer*/) {
    const std::size_t bytes = array.size() * sizeof(array[0]);
    if (bytes > 0) std::memcpy(to, array.data(), bytes);
    to += aligned(bytes);
  });
}

BatchArrays BatchMaker::arrays(const std::byte* at) const noexcept {
  BatchArrays arrays;
  for_arrays([&](const auto& array, auto pointer) {
    const std::size_t bytes = array.size() * sizeof(array[0]);
    using Pointer = std::remove_reference_t<decltype(arrays.*pointer)>;
    if (bytes > 0) arrays.*pointer = reinterpret_cast<Pointer>(at);
    at += aligned(bytes);
  });
  arrays.rows = static_cast<std::uint32_t>(labels_.size());
  arrays.edges = static_cast<std::uint32_t>(slots_.size());
  arrays.uniform = samples_.uniform;
  arrays.window_rows = windows_.rows;
  arrays.segments = static_cast<std::uint32_t>(segment_slot_.size());
  if (by_feature_) {
    arrays.long_segments = static_cast<std::uint32_t>(piece_begin_.size() - 1);
    arrays.pieces = static_cast<std::uint32_t>(piece_edge_.size() - 1);
  }
  return arrays;
}

}  // namespace motley::wide
