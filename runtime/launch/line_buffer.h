// Cuts the output of one rank into lines, puts its rank before each, and remembers the last.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace motley::runtime {

// The last lines that a rank wrote on either stream, for the report of its death.
class LastLines {
 public:
  static constexpr std::size_t kLines = 8;
  static constexpr std::size_t kLineBytes = 400;  // the rest of a line is left out

  void add(std::string_view line);
  const std::deque<std::string>& lines() const noexcept { return lines_; }

 private:
  std::deque<std::string> lines_;
};

class LineBuffer {
 public:
  static constexpr std::size_t kLongestLine = 64 << 10;  // a longer one comes in pieces

  // `last` must outlive the buffer.
  LineBuffer(std::string prefix, LastLines& last) : prefix_(std::move(prefix)), last_(last) {}

  // Appends to `out` the lines that `text` completes, each as prefix, line, '\n'.
  void add(std::string_view text, std::string& out);
  // No more text comes: appends what is left, if anything, as a line.
  void finish(std::string& out);

 private:
  void emit(std::string_view line, std::string& out);

  std::string prefix_;
  LastLines& last_;
  std::string partial_;
};

}  // namespace motley::runtime
