// test/support/simt/turns.h: blocks of a grid that run at once, in turns.
#pragma once

#include <functional>

namespace motley::simt {

// While it lives, `blocks` blocks of a grid run at once: each goes on to its next barrier, then it
// is the next one's turn; always in the same order. Else one block runs after the other, and each
// sees all that those before it did, as no device promises. Grids that checked() watches run one
// block after the other still. One at a time in a process.
class AtOnce {
 public:
  explicit AtOnce(unsigned blocks);
  AtOnce(const AtOnce&) = delete;
  AtOnce& operator=(const AtOnce&) = delete;
  ~AtOnce();
};
unsigned blocks_at_once() noexcept;

// Runs body(i, meet) for i in [0, n), each on a thread of its own but one at a time: meet() lets
// the others come to theirs, or end. Throws what a body threw, that of the first i.
void run_in_turns(unsigned n,
                  const std::function<void(unsigned i, const std::function<void()>& meet)>& body);

}  // namespace motley::simt
