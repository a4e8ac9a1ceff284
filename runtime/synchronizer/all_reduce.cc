// All workers average after every step.
//   cost    2(N-1)/N * n elements, and a byte from each worker to each first; all wait for the
//           slowest at every step
//   deaths  the others throw kPeerLost
#include "runtime/synchronizer/methods.h"
#include "runtime/synchronizer/together.h"

namespace motley::runtime {
namespace {

class AllReduce final : public Synchronizer {
 public:
  AllReduce(Communicator& comm, const SynchronizerOptions& options) : together_(comm, options) {}
  const char* name() const noexcept override { return "all_reduce"; }
  bool survives_loss() const noexcept override { return false; }
  bool mixes() const noexcept override { return true; }
  SyncReport average(View parameters, std::int64_t) override {
    return together_.average(parameters);
  }
  SyncReport finish(View parameters) override { return together_.finish(parameters); }

 private:
  Together together_;
};

}  // namespace

std::unique_ptr<Synchronizer> make_all_reduce(Communicator& comm,
                                              const SynchronizerOptions& options) {
  return std::make_unique<AllReduce>(comm, options);
}

}  // namespace motley::runtime
