// comm/control/dump_maker.h: one rank's part in dumps of the calls of all ranks: makes one, and
// answers those who make one.
//
// The controller asks the ranks that are still missing, and passes on what they tell. Without I/O
// but for the file itself. One thread at a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/control/call_dump.h"
#include "comm/control/client_core.h"
#include "comm/log.h"
#include "comm/recorder.h"

namespace motley {

class DumpMaker {
 public:
  DumpMaker(ClientCore& core, const ClientConfig& config)
      : core_(core), heartbeat_(config.heartbeat) {}

  // Begins a dump. While one is under way that goes on instead. Returns the path of its file;
  // throws kIo if that cannot be written.
  std::string begin(const CallDump::Setup& setup, const std::vector<CallRecord>& own, TimePoint now,
                    LogSink log);
  bool busy() const noexcept { return dump_.has_value(); }

  // A kTell, to be answered with the calls of this rank.
  void answer(const Message& tell, const std::vector<CallRecord>& own, TimePoint now);
  // A kCalls.
  void take(const Message& calls, TimePoint now);
  // To be called at next_timer().
  void on_time(TimePoint now);
  TimePoint next_timer() const noexcept { return dump_ ? next_ : TimePoint::max(); }

 private:
  void ask(TimePoint now);
  void finish_if_whole();
  void finish();

  ClientCore& core_;
  const Duration heartbeat_;
  std::optional<CallDump> dump_;
  TimePoint next_{};
  LogSink log_;
};

}  // namespace motley
