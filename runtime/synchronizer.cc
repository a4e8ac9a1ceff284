#include "runtime/synchronizer.h"

#include <fmt/format.h>

#include "comm/error.h"
#include "comm/partial_reduce.h"
#include "runtime/synchronizer/final_average.h"

namespace motley::runtime {
namespace {

class Alone final : public Synchronizer {
 public:
  explicit Alone(Communicator& comm) : rank_(comm.rank()) {}
  const char* name() const noexcept override { return "none"; }
  SyncReport average(View, std::int64_t) override { return {.group = {rank_}}; }
  SyncReport finish(View) override { return {.group = {rank_}}; }
  bool survives_loss() const noexcept override { return true; }

 private:
  int rank_;
};

class AllReduce final : public Synchronizer {
 public:
  AllReduce(Communicator& comm, const SynchronizerOptions& options)
      : comm_(comm), call_{.timeout = options.timeout}, final_(comm, options.finish_timeout) {}
  const char* name() const noexcept override { return "all_reduce"; }

  SyncReport average(View parameters, std::int64_t) override {
    const TimePoint called = comm_.clock().now();
    comm_.barrier(call_).wait();
    const TimePoint together = comm_.clock().now();
    comm_.all_reduce(parameters, ReduceOp::kAverage, call_).wait();
    return {.group = comm_.world().ranks(),
            .waiting = together - called,
            .averaging = comm_.clock().now() - together};
  }
  SyncReport finish(View parameters) override { return final_.over_all(parameters); }
  bool survives_loss() const noexcept override { return false; }

 private:
  Communicator& comm_;
  CallOptions call_;
  FinalAverage final_;
};

class PartialReduce final : public Synchronizer {
 public:
  PartialReduce(Communicator& comm, const SynchronizerOptions& options)
      : size_(comm.size()),
        reducer_(comm, {.group_size = options.group_size, .timeout = options.timeout}),
        final_(comm, options.finish_timeout) {}
  const char* name() const noexcept override { return "partial_reduce"; }

  SyncReport average(View parameters, std::int64_t step) override {
    PartialResult result = reducer_.average(parameters, step);
    const bool alone = result.solo() && size_ > 1;
    return {.group = std::move(result.group),
            .waiting = result.waiting,
            .averaging = result.averaging,
            .alone = alone};
  }
  SyncReport finish(View parameters) override {
    reducer_.leave();
    return final_.over_survivors(parameters);
  }
  bool survives_loss() const noexcept override { return true; }

 private:
  int size_;
  PartialReducer reducer_;
  FinalAverage final_;
};

}  // namespace

std::unique_ptr<Synchronizer> make_synchronizer(const std::string& name, Communicator& comm,
                                                const SynchronizerOptions& options) {
  if (options.timeout < Duration{} || options.finish_timeout <= Duration{}) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("synchronizer: timeouts of {} s, and {} s at the end. Use times above "
                            "0; 0 for the first means Options::timeout.",
                            to_seconds(options.timeout), to_seconds(options.finish_timeout)));
  }
  if (name == "none") return std::make_unique<Alone>(comm);
  if (name == "all_reduce") return std::make_unique<AllReduce>(comm, options);
  if (name == "partial_reduce") return std::make_unique<PartialReduce>(comm, options);
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("there is no synchronizer '{}'. Use none, all_reduce or partial_reduce.", name));
}

}  // namespace motley::runtime
