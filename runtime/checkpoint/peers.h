// runtime/checkpoint/peers.h: what the workers that save or load together agree on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"

namespace motley::runtime {

// The Error that `body` throws, if it does; other exceptions as errors of the system.
std::optional<Error> attempt(const std::function<void()>& body);

// All calls but rank() and size() are collective. Without a communicator there is one worker.
class Peers {
 public:
  Peers(Communicator* comm, Duration timeout) : comm_(comm), call_{.timeout = timeout} {}

  int rank() const { return comm_ == nullptr ? 0 : comm_->rank(); }
  int size() const { return comm_ == nullptr ? 1 : comm_->size(); }

  // Each worker passes its error, if it has one. nullopt if none has; else this worker's own, or
  // one that names the first worker that has.
  std::optional<Error> exchange(const std::optional<Error>& own);
  // The same; throws what exchange() gives.
  void agree(const std::optional<Error>& own);
  bool all(bool own);
  // Becomes that of worker 0.
  void take_first(std::vector<std::int64_t>& values);
  // Those of each worker, one after another; as many on each.
  std::vector<std::int64_t> gather(const std::vector<std::int64_t>& own);

 private:
  Communicator* comm_;
  CallOptions call_;
};

}  // namespace motley::runtime
