#include "comm/control/succession.h"

#include <fmt/format.h>

#include <utility>

namespace motley {
namespace {

constexpr int kQuestionsPerLease = 8;
constexpr Duration kHeldUp = std::chrono::milliseconds(100);  // as in ControllerCore

// Epochs of one number of restarts were begun without knowledge of each other.
std::uint32_t restarts(std::int64_t epoch) noexcept {
  return static_cast<std::uint32_t>(epoch) >> 16;
}

}  // namespace

bool same_token(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

Succession::Succession(const Config& config, TimePoint now)
    : config_(config),
      state_(config.before.empty() ? State::kServing : State::kLooking),
      next_(now),
      heard_(now) {}

Message Succession::own() const {
  return {.type = MessageType::kSuccession,
          .count = static_cast<std::int32_t>(config_.before.size()),
          .number = serves() ? static_cast<std::int64_t>(epoch_) : 0,
          .value = config_.token};
}

void Succession::end(ErrorCode code, const std::string& why) {
  if (failure_) return;
  failure_ = {code, why};
  state_ = State::kEnded;
}

Message Succession::on_question(const Message& question) {
  if (!same_token(question.value, config_.token)) {
    return {.type = MessageType::kRefused,
            .number = static_cast<std::int64_t>(ErrorCode::kInvalid),
            .value = "the token is not this job's"};
  }
  const bool superseded = serves() && restarts(question.number) > restarts(epoch_);
  if (superseded && !config_.before.empty()) state_ = State::kLooking;  // for that one, or another
  if (superseded && config_.before.empty()) {
    end(ErrorCode::kAborted,
        fmt::format("a standby serves in its place, in epoch {:x}; its own was {:x}. Start it "
                    "again as a standby for that one.",
                    question.number, epoch_));
  }
  return own();
}

void Succession::on_answer(std::size_t which, const Message& answer, TimePoint now) {
  if (state_ == State::kEnded) return;
  if (answer.type == MessageType::kRefused) {
    return end(
        ErrorCode::kInvalid,
        fmt::format("the controller at {}, for which it stands by, refuses it: {}. Start all "
                    "with the same token, from one release.",
                    config_.before.at(which), answer.value));
  }
  if (answer.type != MessageType::kSuccession || !same_token(answer.value, config_.token)) return;
  const bool other_serves = answer.number != 0;
  const std::size_t before = config_.before.size();
  if (!other_serves && !serves() && static_cast<std::size_t>(answer.count) >= before) {
    return end(ErrorCode::kInvalid,
               fmt::format("the controller at {}, for which it stands by, stands by itself, for {} "
                           "others; this one for {}, so neither would ever serve. Start the first "
                           "of a job without standby_for, and each other for all before it.",
                           config_.before.at(which), answer.count, before));
  }
  const auto epoch = static_cast<std::uint32_t>(answer.number);
  if (restarts(epoch) >= restarts(last_epoch_) && other_serves) last_epoch_ = epoch;
  const bool yields = other_serves && (joined_ == 0 || restarts(epoch) >= restarts(epoch_));
  if (serves() && !yields) return;
  heard_ = now;
  if (other_serves) state_ = State::kStandingBy;
}

void Succession::on_time(TimePoint now) {
  if (config_.before.empty() || now < next_ || state_ == State::kEnded) return;
  if (now - next_ > kHeldUp) heard_ += now - next_;
  next_ = now + config_.lease / kQuestionsPerLease;
  if (state_ == State::kStandingBy && now - heard_ >= config_.lease) {
    state_ = State::kServing;
    epoch_ = 0;  // until serves_in() says more
    joined_ = 0;
  }
  asks_ = true;
}

std::optional<Message> Succession::take_question() {
  if (!std::exchange(asks_, false)) return std::nullopt;
  return own();
}

void Succession::serves_in(std::uint32_t epoch, int joined) noexcept {
  epoch_ = epoch;
  joined_ = joined;
}

}  // namespace motley
