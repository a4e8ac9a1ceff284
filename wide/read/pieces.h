// wide/read/pieces.h: a file in pieces of whole lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "wide/read/input.h"

namespace motley::wide {

// Of a file's text, in bytes.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = std::numeric_limits<std::uint64_t>::max();
};

class Pieces {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 18;  // it, and its rows, fit into a cache
  explicit Pieces(Input& input) : input_(input) {}
  // The next lines, in the memory of `buffer`, which may be used again: each with a newline, though
  // the file's last may have none, and with kPadding bytes behind them. Empty at the end.
  std::string_view next(std::string& buffer);
  // The first lines again. The file is not packed.
  std::string_view again(std::string& buffer);
  // From now on only lines that begin in `range` are given. What of the last piece, of which `last`
  // is all or the end, is among them; or else the first lines that are, in the memory of `buffer`.
  // The file is not packed.
  std::string_view narrow(std::string_view last, const ByteRange& range, std::string& buffer);

 private:
  std::string_view read(std::string& buffer);
  // Without the lines of the last piece that begin behind the range.
  std::string_view within(std::string_view last) const;

  Input& input_;
  std::string rest_;  // of a line that goes on
  bool ended_ = false;
  std::uint64_t position_ = 0;  // in the text, where the next piece begins
  std::uint64_t end_ = std::numeric_limits<std::uint64_t>::max();  // where lines no longer count
};

}  // namespace motley::wide
