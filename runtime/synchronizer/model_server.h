// runtime/synchronizer/model_server.h: a model on worker 0 to which workers bring what they
// changed.
//
// A ModelServer is the rule, without I/O: changes in, answers out. `make_served()` makes it a
// Synchronizer: worker 0 listens while it computes, the others send their change after each step
// and wait for the answer, the model.
//   cost    2n elements a step of each worker, all in and out of worker 0
//   deaths  a dead worker is not waited for; if worker 0 dies all others throw kPeerLost
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/synchronizer.h"
#include "runtime/synchronizer/arithmetic.h"

namespace motley::runtime {

class ModelServer {
 public:
  // Worker `to` gets the model as it is now and goes on.
  struct Answer {
    int to;
    std::vector<int> group;  // whose changes have gone in
    bool dropped = false;    // that of `to` has not
  };

  virtual ~ModelServer() = default;
  // Worker `rank` has made a step on the model of `version`. `change` [n] is what it did to it.
  virtual std::vector<Answer> step(int rank, std::int64_t version, ConstView change) = 0;
  // It makes no more: it has finished or died. Once.
  virtual std::vector<Answer> leave(int rank) = 0;

  void begin(ConstView model) { model_ = ModelBuffer(model); }
  const ModelBuffer& model() const noexcept { return model_; }
  // Of the model: one more each time that it has changed.
  std::int64_t version() const noexcept { return version_; }

 protected:
  // model += factor * change
  void apply(ConstView change, double factor) {
    add_scaled(model_.view(), change, factor);
    ++version_;
  }

 private:
  ModelBuffer model_;
  std::int64_t version_ = 0;
};

std::unique_ptr<ModelServer> make_backup_server(int workers, int backup);
std::unique_ptr<ModelServer> make_staleness_server(int workers, int staleness);

// `name` as Synchronizer::name(), a literal. `server` is used by worker 0 only.
std::unique_ptr<Synchronizer> make_served(const char* name, std::unique_ptr<ModelServer> server,
                                          Communicator& comm, const SynchronizerOptions& options);

}  // namespace motley::runtime
