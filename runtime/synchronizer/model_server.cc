#include "runtime/synchronizer/model_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "comm/error.h"
#include "runtime/listener.h"

namespace motley::runtime {
namespace {

constexpr int kServer = 0;
constexpr std::int64_t kStep = 0, kFinish = 1;  // letters: what, and the version of the model

// What stands before the model in an answer: its version, whether the change was dropped, and for
// each worker whether its change has gone in.
std::vector<std::int64_t> head_of(const ModelServer::Answer& answer, std::int64_t version,
                                  int workers) {
  std::vector<std::int64_t> head(static_cast<std::size_t>(workers) + 2);
  head[0] = version;
  head[1] = answer.dropped ? 1 : 0;
  for (const int rank : answer.group) head[static_cast<std::size_t>(rank) + 2] = 1;
  return head;
}

// The workers' side of all ranks but the server's.
class Customer final : public Synchronizer {
 public:
  Customer(const char* name, Communicator& comm, const SynchronizerOptions& options)
      : name_(name), comm_(comm), options_(options), lines_(comm) {}
  const char* name() const noexcept override { return name_; }
  bool survives_loss() const noexcept override { return false; }

  void begin(ConstView parameters) override {
    check_model(name_, parameters);
    base_ = ModelBuffer(parameters);
  }

  SyncReport average(View parameters, std::int64_t) override {
    check_model(name_, parameters, &base_);
    ModelBuffer change(parameters.count, parameters.dtype);
    add_change(change.view(), parameters, base_.view());
    return ask(kStep, change.view(), parameters, options_.timeout);
  }

  SyncReport finish(View parameters) override {
    check_model(name_, parameters, &base_);
    return ask(kFinish, {}, parameters, options_.finish_timeout);
  }

 private:
  SyncReport ask(std::int64_t what, ConstView change, View parameters, Duration timeout) {
    const TimePoint called = comm_.clock().now();
    std::vector<std::int64_t> head(static_cast<std::size_t>(comm_.size()) + 2);
    Request heard = lines_.recv(head, kServer, timeout);
    Letter letter{what, version_};
    lines_.send(view_of(letter), kServer, timeout).wait();
    if (what == kStep) lines_.send(change, kServer, timeout).wait();
    heard.wait();
    const TimePoint answered = comm_.clock().now();
    lines_.recv(parameters, kServer, timeout).wait();
    copy(base_.view(), parameters);
    version_ = head[0];
    SyncReport report{.waiting = answered - called,
                      .averaging = comm_.clock().now() - answered,
                      .dropped = head[1] != 0};
    for (int rank = 0; rank < comm_.size(); ++rank) {
      if (head[static_cast<std::size_t>(rank) + 2] != 0) report.group.push_back(rank);
    }
    return report;
  }

  const char* name_;
  Communicator& comm_;
  SynchronizerOptions options_;
  Lines lines_;
  ModelBuffer base_;  // the model as the server sent it
  std::int64_t version_ = 0;
};

// Worker 0, which has the server: the trainer's thread brings its changes itself, the listener's
// those of the others.
class Host final : public Synchronizer, private Hearer {
 public:
  Host(const char* name, std::unique_ptr<ModelServer> server, Communicator& comm,
       const SynchronizerOptions& options)
      : name_(name), comm_(comm), options_(options), lines_(comm), server_(std::move(server)) {
    for (int rank = 0; rank < comm.size(); ++rank) working_.insert(rank);
  }
  const char* name() const noexcept override { return name_; }
  bool survives_loss() const noexcept override { return false; }

  void begin(ConstView parameters) override {
    check_model(name_, parameters);
    server_->begin(parameters);
    base_ = ModelBuffer(parameters);
    std::vector<int> others(working_.begin(), working_.end());
    std::erase(others, kServer);
    listener_.emplace(lines_, std::move(others), options_.finish_timeout,
                      static_cast<Hearer&>(*this));
  }

  SyncReport average(View parameters, std::int64_t) override {
    check_model(name_, parameters, &base_);
    const TimePoint called = comm_.clock().now();
    ModelBuffer change(parameters.count, parameters.dtype);
    add_change(change.view(), parameters, base_.view());
    std::unique_lock lock(mutex_);
    own_.reset();
    deliver(server_->step(kServer, version_, change.view()));
    return take(lock, parameters, called, options_.timeout);
  }

  SyncReport finish(View parameters) override {
    check_model(name_, parameters, &base_);
    const TimePoint called = comm_.clock().now();
    std::unique_lock lock(mutex_);
    own_.reset();
    leave(kServer, true);
    return take(lock, parameters, called, options_.finish_timeout);
  }

 private:
  bool heard(int from, const Letter& letter) override {
    if (letter[0] == kFinish) {
      const std::lock_guard lock(mutex_);
      leave(from, true);
      return false;
    }
    ModelBuffer change(base_.count(), base_.view().dtype);
    lines_.recv(change.view(), from, options_.timeout).wait();
    const std::lock_guard lock(mutex_);
    deliver(server_->step(from, letter[1], change.view()));
    return working_.contains(from);
  }

  void lost(int from, const Error& error) noexcept override {
    const std::lock_guard lock(mutex_);
    why_lost_ = error.what();
    leave(from, false);
  }

  // The rest with mutex_.

  // `finished`: it waits for the last model, which all get that are still there.
  void leave(int rank, bool finished) noexcept {
    if (finished) finished_.push_back(rank);
    if (working_.erase(rank) == 0) return;
    deliver(server_->leave(rank));
    if (!working_.empty()) return;
    std::sort(finished_.begin(), finished_.end());
    for (const int each : finished_) deliver({{.to = each, .group = finished_}});
  }

  // A worker that cannot be answered has left too.
  void deliver(const std::vector<ModelServer::Answer>& answers) noexcept {
    for (const ModelServer::Answer& answer : answers) {
      if (answer.to == kServer) {
        own_ = answer;
        copy(base_.view(), server_->model().view());
        version_ = server_->version();
        changed_.notify_all();
        continue;
      }
      try {
        const auto head = head_of(answer, server_->version(), comm_.size());
        lines_.send(head, answer.to, options_.timeout).wait();
        lines_.send(server_->model().view(), answer.to, options_.timeout).wait();
      } catch (const Error& error) {
        why_lost_ = error.what();
        leave(answer.to, false);
      }
    }
  }

  SyncReport take(std::unique_lock<std::mutex>& lock, View parameters, TimePoint called,
                  Duration timeout) {
    if (!changed_.wait_for(lock, timeout, [this] { return own_.has_value(); })) {
      throw Error(ErrorCode::kTimeout,
                  fmt::format("{}: worker 0 waited {:.1f} s for {} workers that have not finished. "
                              "Check them, or raise the timeout.{}{}",
                              name_, to_seconds(timeout), working_.size(),
                              why_lost_.empty() ? "" : " Last lost: ", why_lost_));
    }
    copy(parameters, base_.view());
    return {
        .group = own_->group, .waiting = comm_.clock().now() - called, .dropped = own_->dropped};
  }

  const char* name_;
  Communicator& comm_;
  SynchronizerOptions options_;
  Lines lines_;
  std::mutex mutex_;  // of the rest
  std::condition_variable changed_;
  std::unique_ptr<ModelServer> server_;
  std::set<int> working_;                   // who has neither finished nor died
  std::vector<int> finished_;               // who waits for the last model
  std::optional<ModelServer::Answer> own_;  // worker 0's answer, with the model in base_
  ModelBuffer base_;
  std::int64_t version_ = 0;  // of base_
  std::string why_lost_;
  std::optional<Listener> listener_;  // ends first
};

}  // namespace

std::unique_ptr<Synchronizer> make_served(const char* name, std::unique_ptr<ModelServer> server,
                                          Communicator& comm, const SynchronizerOptions& options) {
  if (comm.rank() == kServer) {
    return std::make_unique<Host>(name, std::move(server), comm, options);
  }
  return std::make_unique<Customer>(name, comm, options);
}

}  // namespace motley::runtime
