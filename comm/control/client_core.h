// comm/control/client_core.h: one rank's side of the control plane as a state machine without I/O.
//
// It keeps saying hello until it is admitted, gives signs of life, repeats each request until it is
// answered, and keeps the list of ranks lost. ControlClient wraps it for threads; a simulator
// drives it directly. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/clock.h"
#include "comm/control/message.h"
#include "comm/control/recollection.h"
#include "comm/error.h"

namespace motley {

struct ClientConfig {
  int rank = 0;
  int size = 1;
  std::string token;
  Duration heartbeat = seconds(0.2);  // between signs of life; at most a quarter of the lease
  int controller_rank = -1;  // whose process runs the controller, and takes it along; -1: none
  int controllers = 1;       // that may serve, one at a time
};

class ClientCore {
 public:
  struct Loss {
    int rank;
    std::string why;
  };
  // Why this rank has no seat (any more).
  struct Failure {
    ErrorCode code;
    std::string why;
  };

  ClientCore(const ClientConfig& config, TimePoint now);

  // Sends `message` as the request of its lane and forgets the one before.
  void request(Message message, TimePoint now);
  // The answer to the last request of the lane; null until it is there.
  const Message* reply(Lane lane) const;
  // When that came.
  TimePoint reply_time(Lane lane) const { return lanes_[static_cast<std::size_t>(lane)].answered; }
  // Stops repeating the request of the lane.
  void give_up(Lane lane);

  void on_message(const Message& message, TimePoint now);
  // To be called at next_timer().
  void on_time(TimePoint now);
  TimePoint next_timer() const noexcept { return next_heartbeat_; }
  // The process of `rank` was seen to end. The controller is told, which knows whether that was in
  // good order; if it does not answer within a few heartbeats, the rank counts as lost.
  void process_exited(int rank, TimePoint now);
  // Waits longer for that word: so long that the end of a process that left because of another's
  // death, perhaps with the controller, is not taken for the cause.
  void be_patient_with_exits() { patient_ = true; }
  // `rank` does not answer, or neither it nor the controller does: it counts as lost.
  void peer_silent(int rank, const std::string& why) { lost(rank, why); }
  // This rank gives its seat up: to the others it is dead, for the reason `why`.
  void resign(const std::string& why);

  // Sends a message that is on no lane; lost where this rank has no seat.
  void tell(Message message);
  // The kTell and kCalls that have come since the last call.
  std::vector<Message> take_told() { return std::exchange(told_, {}); }
  // The same of kDropped.
  std::vector<Message> take_dropped() { return std::exchange(dropped_, {}); }

  std::vector<Message> take_output();
  // What the next signs of life say of this rank's calls.
  void set_progress(std::string progress) { progress_ = std::move(progress); }
  // Each lost rank once.
  std::vector<Loss> take_losses();

  bool admitted() const noexcept { return epoch_ != 0; }
  std::uint32_t epoch() const noexcept { return epoch_; }
  const std::optional<Failure>& failure() const noexcept { return failure_; }
  // The connection to the controller has ended; true until it is heard again.
  void connection_broken() noexcept { broken_ = true; }
  bool broken() const noexcept { return broken_; }
  // How long the controller has not been heard.
  Duration silence(TimePoint now) const noexcept { return now - heard_; }
  // Whether another controller is to be tried, as the one at hand is not heard; once each time.
  bool take_move() { return std::exchange(move_, false); }
  // Of the controller; zero before it has admitted this rank.
  Duration lease() const noexcept { return lease_; }
  // That a sign of life and its answer took of late; zero before there was one.
  Duration round_trip() const noexcept { return round_trip_; }

 private:
  struct Pending {
    std::uint64_t seq = 0;
    std::optional<Message> request;  // until it is answered or given up
    std::optional<Message> reply;
    TimePoint sent{};
    TimePoint answered{};
  };

  Pending& lane(Lane lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  void send(Message message);
  void say_hello();
  void begin_epoch(std::uint32_t epoch, TimePoint now);
  void answered(const Message& message, TimePoint now);
  void sign_answered(TimePoint now);
  void look_elsewhere(TimePoint now);
  void lost(int rank, const std::string& why);
  void report_exits(TimePoint now);

  ClientConfig config_;
  TimePoint next_heartbeat_;
  Duration hello_wait_;
  TimePoint heard_;
  TimePoint moved_;  // to the controller at hand
  bool move_ = false;
  bool broken_ = false;
  std::uint32_t epoch_ = 0;
  Duration lease_{};
  std::optional<Failure> failure_;
  Pending lanes_[kLanes];  // by Lane
  Recollection recollection_;
  std::string progress_;
  bool left_ = false;  // the training, and the controller knew it

  std::int64_t losses_known_ = 0;  // the first so many of the controller's list
  std::vector<bool> is_lost_;
  std::deque<Loss> losses_;          // not yet taken
  std::map<int, TimePoint> exited_;  // by rank: since when the controller's word is awaited
  bool patient_ = false;

  std::vector<Message> output_;
  std::vector<Message> told_;
  std::vector<Message> dropped_;
  TimePoint sign_sent_ = TimePoint::max();  // of life, that has no answer yet
  Duration round_trip_{};
};

}  // namespace motley
