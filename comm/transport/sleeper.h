// comm/transport/sleeper.h: waits for one transport on a thread of its own, so that another thread
// can wait for two.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "comm/transport/transport.h"

namespace motley {

class Sleeper {
 public:
  // While asleep it is the thread that uses `watched`; it wakes `other` when it awakes by itself.
  Sleeper(Transport& watched, Transport& other)
      : watched_(watched), other_(other), thread_([this] { run(); }) {}
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper();

  // Begins to wait, as Transport::wait() does. Nobody else may use `watched` until end().
  void begin(TimePoint until);
  // Ends the wait, if it has not ended by itself.
  void end();

 private:
  void run();

  Transport& watched_;
  Transport& other_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool asleep_ = false;
  bool ending_ = false;
  bool stopping_ = false;
  TimePoint until_{};
  std::thread thread_;
};

}  // namespace motley
