#include "runtime/launch/line_buffer.h"

#include <algorithm>

namespace motley::runtime {

void LastLines::add(std::string_view line) {
  if (lines_.size() == kLines) lines_.pop_front();
  lines_.emplace_back(line.substr(0, kLineBytes));
}

void LineBuffer::add(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const std::size_t room = kLongestLine - partial_.size();
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > room) {
      partial_ += text.substr(0, room);
      text.remove_prefix(room);
      finish(out);
    } else if (end < text.size()) {
      partial_ += text.substr(0, end);
      text.remove_prefix(end + 1);
      emit(partial_, out);
      partial_.clear();
    } else {
      partial_ += text;
      return;
    }
  }
}

void LineBuffer::finish(std::string& out) {
  if (partial_.empty()) return;
  emit(partial_, out);
  partial_.clear();
}

void LineBuffer::emit(std::string_view line, std::string& out) {
  out += prefix_;
  out += line;
  out += '\n';
  last_.add(line);
}

}  // namespace motley::runtime
