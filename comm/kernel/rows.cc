#include "comm/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/error.h"
#include "comm/kernel/row_index.h"

namespace motley {

void throw_no_row(std::string_view who, std::size_t position, std::int64_t index,
                  std::size_t rows) {
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("{}: index[{}] is {}, but there are {} rows. Use 0 to {}, or -1 for none.", who,
                  position, index, rows, static_cast<std::int64_t>(rows) - 1));
}

void gather_rows(const RowMove& move) {
  expect_shape(move, move.out.count);
  const std::size_t bytes = move.columns * size_bytes(move.out.dtype);
  if (move.index.count == 0) return;
  std::size_t next = 0;  // the first row that is not written
  const auto zero_until = [&](std::size_t row) {
    if (row > next) std::memset(move.out.data + next * bytes, 0, (row - next) * bytes);
    next = row + 1;
  };
  for_each_row("gather_rows", move.index, move.in.count / move.columns,
               [&](std::size_t i, std::size_t row) {
                 zero_until(i);
                 std::memcpy(move.out.data + i * bytes, move.in.data + row * bytes, bytes);
               });
  zero_until(move.index.count);
}

void scatter_rows(const RowMove& move) {
  expect_shape(move, move.in.count);
  const std::size_t bytes = move.columns * size_bytes(move.out.dtype);
  for_each_row("scatter_rows", move.index, move.out.count / move.columns,
               [&](std::size_t i, std::size_t row) {
                 std::memcpy(move.out.data + row * bytes, move.in.data + i * bytes, bytes);
               });
}

RowCheck::RowCheck(StreamRef stream)
    : note_(4 * sizeof(std::int64_t)), host_(8 * sizeof(std::int64_t)) {
  std::memset(host_.data(), 0, host_.size_bytes());
  motley::copy(note(), host_.view(8, DType::kInt64).slice(4, 4), stream);
}

void RowCheck::fetch(StreamRef stream) {
  const View host = host_.view(8, DType::kInt64);
  motley::copy(host.slice(0, 4), note(), stream);
  motley::copy(note(), host.slice(4, 4), stream);
}

void RowCheck::verify() const {
  const auto note = host_.view(4, DType::kInt64).as<const std::int64_t>();
  if (note[0] == 0) return;
  throw_no_row(fmt::format("rows on the device ({} such)", note[0]),
               static_cast<std::size_t>(note[1]), note[2], static_cast<std::size_t>(note[3]));
}

}  // namespace motley
