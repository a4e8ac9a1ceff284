#include "comm/request.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "comm/executor/engine.h"

namespace motley {

Request::State::~State() { cancel(); }

void Request::State::wait() {
  if (!done_) engine_->wait(*this);
  throw_error();
}

bool Request::State::test() {
  if (!done_) engine_->poll();
  if (done_) throw_error();
  return done_;
}

void Request::State::cancel() noexcept {
  if (!done_) engine_->cancel(*this);
}

void Request::State::throw_error() {
  if (const auto& error = work().error()) throw *error;
}

Request::Request() noexcept = default;
Request::Request(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Request::Request(Request&&) noexcept = default;
Request& Request::operator=(Request&&) noexcept = default;
Request::~Request() = default;

void Request::wait() {
  if (state_) state_->wait();
}

bool Request::test() { return !state_ || state_->test(); }

void Request::cancel() noexcept {
  if (state_) state_->cancel();
}

std::size_t wait_any(std::span<Request> requests) {
  assert(!requests.empty());
  const auto first = [&requests] {
    return static_cast<std::size_t>(
        std::find_if(requests.begin(), requests.end(),
                     [](const Request& each) { return !each.state_ || each.state_->done(); }) -
        requests.begin());
  };
  if (first() == requests.size()) {
    requests.front().state_->engine().wait_until([&] { return first() < requests.size(); });
  }
  return first();
}

}  // namespace motley
