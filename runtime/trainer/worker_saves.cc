#include "runtime/trainer/worker_saves.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <vector>

#include "comm/error.h"
#include "comm/group.h"
#include "runtime/state_exchange.h"

namespace motley::runtime {
namespace {

constexpr double kLately = 3;  // intervals
constexpr double kFailed = -1;
constexpr std::uint64_t kLoading = std::uint64_t{1} << 55;  // id of the group of those with models

std::string folder_of(const std::string& folder, int rank) {
  return folder.empty() ? folder : fmt::format("{}/worker-{}", folder, rank);
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

WorkerSaves::WorkerSaves(Communicator& comm, const State& state, const AutosaveOptions& options)
    : comm_(comm),
      options_(options),
      all_(state),
      checkpoints_(folder_of(options.folder, comm.rank()), options.checkpoint),
      begun_(comm.clock().now()) {
  if (options.every_steps < 0 || options.every < Duration{}) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("trainer: autosave every {} steps or {} s. Use numbers from 0 upwards.",
                            options.every_steps, to_seconds(options.every)));
  }
  for (const StateItem& item : state.items()) {
    if (is_shared(item.policy)) shared_.add(item);
    has_own_ = has_own_ || !is_shared(item.policy);
  }
  all_.add("trainer.step", step_, StatePolicy::kKeepOwn);
  all_.add("trainer.saved", saved_, StatePolicy::kKeepOwn);
  all_.add("trainer.interval", interval_, StatePolicy::kKeepOwn);
}

std::optional<Loaded> WorkerSaves::load() {
  if (options_.folder.empty() || !options_.resume) return std::nullopt;
  std::optional<Loaded> loaded;
  std::exception_ptr trouble;
  try {
    check_all_there();
    loaded = checkpoints_.load(all_, options_.load);
  } catch (const Error&) {
    trouble = std::current_exception();
  }
  const auto workers = static_cast<std::size_t>(comm_.size());
  std::vector<double> own = {trouble ? kFailed : saved_, interval_}, all(2 * workers);
  comm_.all_gather(own, all).wait();
  if (trouble) std::rethrow_exception(trouble);
  double newest = 0;
  for (std::size_t rank = 0; rank < workers; ++rank) {
    newest = std::max(newest, all[2 * rank]);
    if (all[2 * rank] != kFailed) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("trainer: worker {} cannot go on from what it saved. Its own error "
                            "says why.",
                            rank),
                {static_cast<int>(rank)});
  }
  if (newest == 0) return std::nullopt;
  std::vector<int> lately;
  for (std::size_t rank = 0; rank < workers; ++rank) {
    const double saved = all[2 * rank], interval = all[2 * rank + 1];
    if (saved > 0 && newest - saved <= kLately * interval) lately.push_back(static_cast<int>(rank));
  }
  share(lately);
  std::vector<std::int64_t> most = {step_};
  comm_.all_reduce(most, ReduceOp::kMax).wait();
  behind_ = most[0] - step_;
  return loaded;
}

// The mean of their models for all.
void WorkerSaves::share(const std::vector<int>& lately) {
  const Group group(lately, {.id = kLoading, .epoch = comm_.world().next_call()});
  if (group.contains(comm_.rank())) average(comm_, shared_, {.group = &group});
  for (const StateItem& item : shared_.items()) {
    comm_.broadcast(item.data, lately.front()).wait();
  }
}

void WorkerSaves::check_all_there() const {
  const std::string next = folder_of(options_.folder, comm_.size());
  std::error_code ignored;
  if (!has_own_ || !std::filesystem::exists(next, ignored)) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("trainer: {} is there, but only {} workers go on: what more workers had "
                          "of their own would be lost. Start as many as had saved.",
                          next, comm_.size()));
}

void WorkerSaves::begin_save(std::int64_t step) {
  const TimePoint now = comm_.clock().now();
  interval_ = to_seconds(now - begun_);
  saved_ = seconds_since_1970();
  step_ = step;
  begun_ = now;
  checkpoints_.save(all_, step);
}

void WorkerSaves::after_round(std::int64_t step) {
  if (options_.folder.empty()) return;
  const bool by_steps =
      options_.every_steps > 0 && step / options_.every_steps > step_ / options_.every_steps;
  const bool by_time =
      options_.every > Duration{} && comm_.clock().now() - begun_ >= options_.every;
  if (checkpoints_.poll() && (by_steps || by_time)) begin_save(step);
}

void WorkerSaves::save(std::int64_t step) {
  if (options_.folder.empty()) return;
  begin_save(step);
  checkpoints_.wait();
}

}  // namespace motley::runtime
