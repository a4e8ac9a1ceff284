#include "runtime/synchronizer.h"

#include <fmt/format.h>

#include "comm/error.h"
#include "comm/partial_reduce.h"

namespace motley::runtime {
namespace {

class Alone final : public Synchronizer {
 public:
  explicit Alone(Communicator& comm) : rank_(comm.rank()) {}
  const char* name() const noexcept override { return "none"; }
  SyncReport average(View, std::int64_t) override { return {.group = {rank_}}; }
  void finish() override {}
  bool survives_loss() const noexcept override { return true; }

 private:
  int rank_;
};

class AllReduce final : public Synchronizer {
 public:
  explicit AllReduce(Communicator& comm) : comm_(comm) {}
  const char* name() const noexcept override { return "all_reduce"; }

  SyncReport average(View parameters, std::int64_t) override {
    const TimePoint called = comm_.clock().now();
    comm_.barrier().wait();
    const TimePoint together = comm_.clock().now();
    comm_.all_reduce(parameters, ReduceOp::kAverage).wait();
    return {.group = comm_.world().ranks(),
            .waiting = together - called,
            .averaging = comm_.clock().now() - together};
  }
  void finish() override {}
  bool survives_loss() const noexcept override { return false; }

 private:
  Communicator& comm_;
};

class PartialReduce final : public Synchronizer {
 public:
  PartialReduce(Communicator& comm, int group_size) : reducer_(comm, {.group_size = group_size}) {}
  const char* name() const noexcept override { return "partial_reduce"; }

  SyncReport average(View parameters, std::int64_t step) override {
    PartialResult result = reducer_.average(parameters, step);
    return {
        .group = std::move(result.group), .waiting = result.waiting, .averaging = result.averaging};
  }
  void finish() override { reducer_.leave(); }
  bool survives_loss() const noexcept override { return true; }

 private:
  PartialReducer reducer_;
};

}  // namespace

std::unique_ptr<Synchronizer> make_synchronizer(const std::string& name, Communicator& comm,
                                                const SynchronizerOptions& options) {
  if (name == "none") return std::make_unique<Alone>(comm);
  if (name == "all_reduce") return std::make_unique<AllReduce>(comm);
  if (name == "partial_reduce") return std::make_unique<PartialReduce>(comm, options.group_size);
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("there is no synchronizer '{}'. Use none, all_reduce or partial_reduce.", name));
}

}  // namespace motley::runtime
