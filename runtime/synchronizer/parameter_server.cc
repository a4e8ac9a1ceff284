// An asynchronous parameter server with bounded staleness: a change goes into the model when it
// comes, and its worker goes on from there, unless it is more than `staleness` steps ahead of the
// slowest: then it waits for that. Each change weighs 1/N, as in all_reduce, so that the same
// learning rates suit both.
//   cost    as model_server.h says
//   deaths  as model_server.h says
// Q. Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server",
// NIPS 2013; M. Li et al., "Scaling distributed machine learning with the parameter server", OSDI
// 2014.
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "runtime/synchronizer/methods.h"
#include "runtime/synchronizer/model_server.h"

namespace motley::runtime {
namespace {

class StalenessServer final : public ModelServer {
 public:
  StalenessServer(int workers, int staleness) : weight_(1.0 / workers), staleness_(staleness) {
    for (int rank = 0; rank < workers; ++rank) steps_[rank] = 0;
  }

  std::vector<Answer> step(int rank, std::int64_t, ConstView change) override {
    apply(change, weight_);
    ++steps_.at(rank);
    waiting_.push_back(rank);
    return let_go();
  }

  std::vector<Answer> leave(int rank) override {
    steps_.erase(rank);
    std::erase(waiting_, rank);
    return let_go();
  }

 private:
  std::vector<Answer> let_go() {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const auto& [rank, steps] : steps_) least = std::min(least, steps);
    std::vector<Answer> answers;
    std::erase_if(waiting_, [&](int rank) {
      if (steps_.at(rank) - least > staleness_) return false;
      answers.push_back({.to = rank, .group = {rank}});
      return true;
    });
    return answers;
  }

  double weight_;
  std::int64_t staleness_;
  std::map<int, std::int64_t> steps_;  // of those that have not left
  std::vector<int> waiting_;
};

}  // namespace

std::unique_ptr<ModelServer> make_staleness_server(int workers, int staleness) {
  return std::make_unique<StalenessServer>(workers, staleness);
}

std::unique_ptr<Synchronizer> make_parameter_server(Communicator& comm,
                                                    const SynchronizerOptions& options) {
  return make_served("parameter_server", make_staleness_server(comm.size(), options.staleness),
                     comm, options);
}

}  // namespace motley::runtime
