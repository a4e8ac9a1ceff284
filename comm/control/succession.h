// comm/control/succession.h: which of several controllers of a job serves, as a state machine
// without I/O, as ControllerCore is one.
//
// Controllers of a job have an order, and each knows those that go before it. It asks them, eight
// times a lease, and stands by as long as one of them answers: that one serves, or stands by for
// another that does. Once none has answered for a lease it serves itself, in an epoch above any
// that it has heard of, and goes on asking, with that epoch: one that was cut off, or stopped,
// learns that its time is over and serves no more. Should that one have gone on to a later epoch,
// or have come back before a rank has come here, this one stands by again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/control/message.h"
#include "comm/error.h"

namespace motley {

// Takes as long for any two tokens of equal length.
bool same_token(const std::string& a, const std::string& b);

class Succession {
 public:
  enum class State : std::uint8_t {
    kLooking,     // no controller that serves has answered yet
    kStandingBy,  // one has
    kServing,
    kEnded,  // see failure()
  };
  struct Failure {
    ErrorCode code;
    std::string why;
  };
  struct Config {
    std::vector<std::string> before;  // addresses of the controllers that go before this one
    std::string token;
    Duration lease{};
  };

  Succession(const Config& config, TimePoint now);

  // The answer to a kSuccession. If it comes from one that serves in a later epoch, this one does
  // not serve any more.
  Message on_question(const Message& question);
  // What the one before this that has number `which` has answered.
  void on_answer(std::size_t which, const Message& answer, TimePoint now);
  // To be called at next_timer(). One that comes late, because this process was held up, says
  // nothing of the others' silence.
  void on_time(TimePoint now);
  TimePoint next_timer() const noexcept {
    return config_.before.empty() ? TimePoint::max() : next_;
  }
  // This controller serves in `epoch`, and so many ranks have joined it.
  void serves_in(std::uint32_t epoch, int joined) noexcept;

  // What all those before this one are to be asked now, if anything.
  std::optional<Message> take_question();
  State state() const noexcept { return state_; }
  bool serves() const noexcept { return state_ == State::kServing; }
  // The latest epoch of the others.
  std::uint32_t last_epoch() const noexcept { return last_epoch_; }
  const std::optional<Failure>& failure() const noexcept { return failure_; }

 private:
  Message own() const;
  void end(ErrorCode code, const std::string& why);

  Config config_;
  State state_;
  TimePoint next_;
  TimePoint heard_;  // one of those before
  std::uint32_t epoch_ = 0;
  int joined_ = 0;
  std::uint32_t last_epoch_ = 0;
  bool asks_ = false;
  std::optional<Failure> failure_;
};

}  // namespace motley
