// All workers average after every `local_steps` steps.
//   cost    that of all_reduce, divided by local_steps; all wait for the slowest, whose steps in
//           between may even out
//   deaths  the others throw kPeerLost
// S. U. Stich, "Local SGD converges fast and communicates little", ICLR 2019.
#include "runtime/synchronizer/methods.h"
#include "runtime/synchronizer/together.h"

namespace motley::runtime {
namespace {

class LocalSgd final : public Synchronizer {
 public:
  LocalSgd(Communicator& comm, const SynchronizerOptions& options)
      : rank_(comm.rank()), every_(options.local_steps), together_(comm, options) {}
  const char* name() const noexcept override { return "local_sgd"; }
  bool survives_loss() const noexcept override { return false; }
  bool mixes() const noexcept override { return true; }

  SyncReport average(View parameters, std::int64_t) override {
    if (++since_ < every_) return {.group = {rank_}};
    since_ = 0;
    return together_.average(parameters);
  }
  SyncReport finish(View parameters) override {
    if (since_ > 0) together_.average(parameters);  // the steps since the last
    return together_.finish(parameters);
  }

 private:
  int rank_;
  int every_;
  int since_ = 0;  // the last average
  Together together_;
};

}  // namespace

std::unique_ptr<Synchronizer> make_local_sgd(Communicator& comm,
                                             const SynchronizerOptions& options) {
  return std::make_unique<LocalSgd>(comm, options);
}

}  // namespace motley::runtime
