// comm/executor/engine.h: drives all calls of one rank over one transport.
//
// Progress is made by whoever waits: a token lets one thread at a time use the transport. A thread
// that finds the token taken sleeps until its own call is done or the token is free.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/clock.h"
#include "comm/executor/arena.h"
#include "comm/executor/execution.h"
#include "comm/request.h"
#include "comm/transport/transport.h"

namespace motley {

class Engine {
 public:
  Engine(std::unique_ptr<Transport> transport, Clock& clock);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();  // calls still under way fail with kAborted

  // Starts `call`; the request waits for it.
  Request start(const Call& call);
  // One round of progress, if no other thread is making any. Never blocks.
  void poll();
  // See Transport::retire_before.
  void retire_before(const GroupTag& tag);
  // Fails the calls of groups that `rank` is in, any thread: future ones at once, those under way
  // when they need that rank or, at the latest, after kLossGrace. What they still need may have
  // been sent before the death.
  static constexpr Duration kLossGrace = std::chrono::milliseconds(250);
  void report_lost(int rank, const std::string& why) noexcept;

  Transport& transport() noexcept { return *transport_; }
  Clock& clock() noexcept { return clock_; }

 private:
  friend class Request::State;
  class Token;

  // One round; with the token. Finished calls leave the list, failed ones are cancelled.
  void progress();
  void take_news();
  void fail_if_lost(Request::State& state, TimePoint known_until);
  void close(Request::State& state) noexcept;
  void wait(Request::State& state);
  void cancel(Request::State& state) noexcept;
  TimePoint next_deadline() const noexcept;

  std::unique_ptr<Transport> transport_;
  Clock& clock_;
  Arena arena_;                         // with the token
  std::vector<Request::State*> calls_;  // under way; with the token
  struct Loss {
    std::string why;
    TimePoint known{};  // since when
  };
  std::map<int, Loss> lost_;  // with the token

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool token_taken_ = false;
  std::vector<std::pair<int, std::string>> news_;  // deaths reported, not yet acted on
  std::atomic<int> starters_{0};                   // threads that want the token from a waiter
  std::atomic<int> waiters_{0};                    // threads that sleep until something changes
};

// The part of a call that both its request and the engine know.
class Request::State {
 public:
  State(Engine& engine, const Call& call)
      : engine_(&engine), execution_(engine.transport(), engine.arena_, call) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  void wait();
  bool test();
  void cancel() noexcept;

 private:
  friend class Engine;

  void throw_error() const;

  Engine* engine_;  // null once the engine is gone
  Execution execution_;
  std::atomic<bool> done_{false};  // set after the last change of execution_
};

}  // namespace motley
