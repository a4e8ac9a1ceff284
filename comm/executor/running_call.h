// comm/executor/running_call.h: how a call under way fails, whoever runs it: a schedule (Execution)
// or the transport (TeamExecution).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/control/diagnosis.h"
#include "comm/error.h"
#include "comm/executor/call.h"
#include "comm/executor/notices.h"
#include "comm/transport/transport.h"

namespace motley {

class RunningCall : public Sink {
 public:
  RunningCall(Transport& transport, const Call& call) : transport_(transport), call_(call) {}
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  virtual bool finished() const noexcept = 0;
  // The ranks that it waits for, ascending.
  virtual std::vector<int> awaited() const = 0;

  const std::optional<Error>& error() const noexcept { return error_; }
  bool lost_a_rank() const noexcept { return error_ && error_->code() == ErrorCode::kPeerLost; }
  bool complete() const noexcept { return finished() && !error_; }
  const Call& call() const noexcept { return call_; }
  CallId id() const noexcept { return {call_.group->tag(), call_.number}; }
  const Fingerprint& fingerprint() const noexcept { return fingerprint_; }
  // Received so far.
  std::uint64_t messages() const noexcept { return messages_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  // What this rank has found and the others are to be told of, if anything: a disagreement, or what
  // broke; without an error if it was found too late for this call.
  const std::optional<Notice>& notice() const noexcept { return notice_; }

  // The call will not complete. The engine tells the transport, outside its callbacks.
  void fail(const Error& error);
  void fail_timeout(TimePoint now, const Diagnosis& diagnosis);
  // Instead of another lost rank, if it failed because of one.
  void fail_lost(int rank, const std::string& why);
  void fail_aborted(const std::string& why);
  void fail_mismatch(const Notice& notice);  // found here
  void fail_told(const Notice& notice);      // found by another rank
  // The part of this rank broke, so that no other can complete its own.
  void fail_for_all(const Error& error);

  void failed(std::uint32_t cookie, const Error& error) override;
  void disagreed(int from, const Tag& theirs, const Fingerprint& ours) override;

 protected:
  ~RunningCall() = default;
  // "rank 3 of 8: all_reduce #1580 (ring, 1048576 float32)".
  virtual std::string who() const = 0;
  // "waiting for rank 2 (shm) to …".
  virtual std::string waiting_text() const = 0;
  // Of this rank, which has found it, with `peer`; `text` has both sides' values.
  Notice disagreement_with(int peer, std::string text) const;

  Transport& transport_;
  Call call_;
  Fingerprint fingerprint_;
  std::uint64_t messages_ = 0;
  std::uint64_t bytes_ = 0;
  std::optional<Error> error_;

 private:
  std::optional<Notice> notice_;
};

}  // namespace motley
