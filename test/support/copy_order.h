// test/support/copy_order.h: finds copies of two streams that touch the same bytes while nothing
// orders them.
//
// A copy comes after those before it in its stream, after what holds its stream, and after all that
// somebody was told to be done before the copy was asked for. What is done by then without anybody
// having been told does not count: so a missing wait is found whatever the timing.
//   errors  kIo, saying both copies, from copy()
//   limits  kernels and other work are not looked at, nor what the host makes such work wait for;
//           what one thread was told, all know
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace motley::test {

class CopyOrder {
 public:
  // The first `position` pieces of work of a stream.
  struct Place {
    const void* stream = nullptr;
    std::uint64_t position = 0;
  };
  struct Copy {
    const std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
  };

  // Each as the last piece of work of `place`.
  void copy(const Place& place, const Copy& copy);
  void hold(const Place& place, const Place& after);
  // Somebody knows that all of `place` is done.
  void told(const Place& place);
  void forget(const void* stream) { open_.erase(stream); }

 private:
  struct Piece {
    std::uint64_t position = 0;
    std::optional<Copy> copy;
    Place after;  // if it is no copy
  };
  using Reached = std::map<const void*, std::uint64_t>;

  void reach(const Place& place, Reached& reached) const;

  std::map<const void*, std::deque<Piece>> open_;  // of whose end nobody was told yet
};

}  // namespace motley::test
