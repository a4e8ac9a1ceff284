// One of our own output streams, written without ever blocking on a reader that is slow.
#pragma once

#include <cstddef>
#include <string>

namespace motley::runtime {

class Sink {
 public:
  static constexpr std::size_t kFull = 1 << 20;

  explicit Sink(int fd) : fd_(fd) {}

  int fd() const noexcept { return fd_; }
  // What is to be written is appended here, in whole lines.
  std::string& text() noexcept { return text_; }
  bool empty() const noexcept { return text_.empty(); }
  // So much is waiting that the writers should wait too.
  bool full() const noexcept { return text_.size() >= kFull; }
  // Writes what the reader takes at once. Drops everything, now and later, if there is none.
  void write_ready();
  void give_up();
  // The reader has gone.
  bool broken() const noexcept { return broken_; }

 private:
  int fd_;
  std::string text_;
  bool broken_ = false;
};

// Both descriptors lead to the same file, pipe or terminal.
bool is_same_file(int first, int second);

}  // namespace motley::runtime
