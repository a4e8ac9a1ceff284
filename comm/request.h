// comm/request.h: completion of one asynchronous call.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace motley {

// Move-only. Destroying an unfinished request cancels it: afterwards no buffer of the call is
// touched, and the other ranks see a timeout or an abort, as they would if this rank had died.
class Request {
 public:
  class State;  // lives in the executor

  Request() noexcept;  // already finished
  explicit Request(std::unique_ptr<State> state) noexcept;
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;
  ~Request();

  // Returns when the call is complete. Throws what went wrong: kTimeout, kPeerLost, kMismatch,
  // kAborted. Any thread; one at a time.
  void wait();
  // True once complete; makes progress unless another thread is at it, never blocks. Throws as
  // wait() does.
  bool test();
  // Gives the call up, from any thread: who waits for it gets kAborted. Idempotent.
  void cancel() noexcept;

 private:
  friend std::size_t wait_any(std::span<Request> requests);

  std::unique_ptr<State> state_;
};

// Returns the place of one that is over, complete or failed, as its wait() then tells: the first
// such, as soon as there is one. At least one request, all of one communicator. Sleeps meanwhile
// without looking around first: for threads that listen to many and mostly hear nothing.
std::size_t wait_any(std::span<Request> requests);

}  // namespace motley
