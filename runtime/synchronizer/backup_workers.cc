// Synchronous steps that do not wait for the last `backup` workers: the first N - backup changes of
// a step are averaged; those that come later were made on an old model and are dropped, and who
// brought them goes on from the new one.
//   cost    as model_server.h says; a dropped step is lost work: who is slow at every step never
//           contributes
//   deaths  as model_server.h says; fewer workers than N - backup are all waited for
// J. Chen et al., "Revisiting distributed synchronous SGD", 2016, arXiv:1604.00981.
#include <algorithm>
#include <utility>

#include "runtime/synchronizer/methods.h"
#include "runtime/synchronizer/model_server.h"

namespace motley::runtime {
namespace {

class BackupServer final : public ModelServer {
 public:
  BackupServer(int workers, int backup) : wanted_(workers - backup), working_(workers) {}

  std::vector<Answer> step(int rank, std::int64_t version, ConstView change) override {
    if (version < this->version()) return {{.to = rank, .group = {rank}, .dropped = true}};
    if (waiting_.empty()) sum_ = ModelBuffer(change.count, change.dtype);
    add_scaled(sum_.view(), change, 1);
    waiting_.push_back(rank);
    return close_if_full();
  }

  std::vector<Answer> leave(int) override {
    --working_;
    return close_if_full();
  }

 private:
  std::vector<Answer> close_if_full() {
    if (waiting_.empty()) return {};
    if (static_cast<int>(waiting_.size()) < std::min(wanted_, working_)) return {};
    apply(sum_.view(), 1.0 / static_cast<double>(waiting_.size()));
    std::sort(waiting_.begin(), waiting_.end());
    std::vector<Answer> answers;
    for (const int rank : waiting_) answers.push_back({.to = rank, .group = waiting_});
    waiting_.clear();
    return answers;
  }

  int wanted_;
  int working_;  // that have not left
  ModelBuffer sum_;
  std::vector<int> waiting_;  // whose changes are in sum_
};

}  // namespace

std::unique_ptr<ModelServer> make_backup_server(int workers, int backup) {
  return std::make_unique<BackupServer>(workers, backup);
}

std::unique_ptr<Synchronizer> make_backup_workers(Communicator& comm,
                                                  const SynchronizerOptions& options) {
  return make_served("backup_workers", make_backup_server(comm.size(), options.backup), comm,
                     options);
}

}  // namespace motley::runtime
