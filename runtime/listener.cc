#include "runtime/listener.h"

#include <cstddef>
#include <exception>
#include <utility>

namespace motley::runtime {

Listener::Listener(const Lines& lines, std::vector<int> peers, Duration patience, Hearer& hearer)
    : lines_(lines), patience_(patience), hearer_(hearer), peers_(std::move(peers)) {
  for (const int peer : peers_) letters_[peer] = {};
  for (const int peer : peers_) requests_.push_back(expect(peer));
  thread_ = std::thread([this] { run(); });
}

Listener::~Listener() { stop(); }

void Listener::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (Request& request : requests_) request.cancel();
  }
  if (thread_.joinable()) thread_.join();
}

Request Listener::expect(int from) {
  return lines_.recv(view_of(letters_.at(from)), from, patience_);
}

void Listener::run() {
  while (!requests_.empty()) {
    const std::size_t index = wait_any(requests_);
    const bool more = hear(index);
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    const auto place = static_cast<std::ptrdiff_t>(index);
    if (more) {
      requests_[index] = expect(peers_[index]);
    } else {
      requests_.erase(requests_.begin() + place);
      peers_.erase(peers_.begin() + place);
    }
  }
}

bool Listener::hear(std::size_t index) {
  const int from = peers_[index];
  try {
    requests_[index].wait();
    return hearer_.heard(from, letters_.at(from));
  } catch (const Error& error) {
    const bool stopping = [this] {
      const std::lock_guard lock(mutex_);
      return stopping_;
    }();
    if (!stopping) hearer_.lost(from, error);
  } catch (const std::exception& error) {
    hearer_.lost(from, Error(ErrorCode::kAborted, error.what()));
  }
  return false;
}

}  // namespace motley::runtime
