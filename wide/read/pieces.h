// wide/read/pieces.h: a file in pieces of whole lines.
#pragma once

#include <string>
#include <string_view>

#include "wide/read/input.h"

namespace motley::wide {

class Pieces {
 public:
  explicit Pieces(Input& input) : input_(input) {}
  // The next lines, in the memory of `buffer`, which may be used again: each with a newline, though
  // the file's last may have none, and with kPadding bytes behind them. Empty at the end.
  std::string_view next(std::string& buffer);

 private:
  Input& input_;
  std::string rest_;  // of a line that goes on
  bool ended_ = false;
};

}  // namespace motley::wide
