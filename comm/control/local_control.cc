#include "comm/control/local_control.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/control/controller_core.h"

namespace motley {
namespace {

constexpr Duration kHeartbeat = seconds(0.2);
constexpr Duration kJoinTime = seconds(10);

}  // namespace

// One thread runs the controller's state machine and delivers its messages.
struct LocalControl::Hub {
  class Channel;

  Hub(int size_, Duration lease, Clock& clock_)
      : size(size_),
        clock(clock_),
        core({.size = size_, .token = {}, .lease = lease}, clock_.now()) {
    thread = std::thread([this] { run(); });
  }
  ~Hub() {
    {
      const std::scoped_lock lock(mutex);
      stopping = true;
    }
    changed.notify_one();
    thread.join();
  }

  void post(const std::string& from, const Message& message) {
    {
      const std::scoped_lock lock(mutex);
      inbox.emplace_back(from, message);
    }
    changed.notify_one();
  }

  void run() {
    TimePoint next = clock.now();
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait_until(lock, next,
                         [this] { return stopping || news || !inbox.empty() || !lost.empty(); });
      if (stopping) return;
      const auto messages = std::exchange(inbox, {});
      const auto reports = std::exchange(lost, {});
      news = false;
      lock.unlock();
      next = deliver(messages, reports);
      lock.lock();
    }
  }

  // Returns when it is to be called next at the latest.
  TimePoint deliver(const std::vector<std::pair<std::string, Message>>& messages,
                    const std::vector<std::pair<int, std::string>>& reports) {
    const std::scoped_lock lock(delivery);
    for (const auto& [rank, why] : reports) core.report_lost(rank, why);
    for (const auto& [from, message] : messages) core.on_message(from, message, clock.now());
    core.on_time(clock.now());
    for (const ControllerCore::Output& output : core.take_output()) {
      const auto to = clients.find(output.to);
      if (to != clients.end()) to->second->on_message(output.message);
    }
    TimePoint next = core.next_timer();
    for (const auto& [identity, events] : clients) next = std::min(next, events->on_time());
    return next;
  }

  const int size;
  Clock& clock;
  std::mutex delivery;                            // held while events are delivered
  ControllerCore core;                            // guarded by delivery
  std::map<std::string, ChannelEvents*> clients;  // guarded by delivery; by identity
  std::mutex mutex;                               // guards what follows; taken after delivery
  std::condition_variable changed;
  std::vector<std::pair<std::string, Message>> inbox;
  std::vector<std::pair<int, std::string>> lost;
  bool news = false;  // a client has come
  bool stopping = false;
  std::thread thread;
};

class LocalControl::Hub::Channel final : public ControlChannel {
 public:
  Channel(Hub& hub, int rank) : hub_(hub), identity_(std::to_string(rank)) {}
  ~Channel() override { stop(); }

  void start(ChannelEvents& events) override {
    {
      const std::scoped_lock lock(hub_.delivery);
      hub_.clients[identity_] = &events;
    }
    {
      const std::scoped_lock lock(hub_.mutex);
      hub_.news = true;
    }
    hub_.changed.notify_one();
  }
  void stop() noexcept override {
    const std::scoped_lock lock(hub_.delivery);
    hub_.clients.erase(identity_);
  }
  void send(const Message& message) override { hub_.post(identity_, message); }
  void watch_socket(int) override {}        // there are no other hosts
  void watch_process(int, int) override {}  // it is this process, whose end nobody here would see
  void try_next() override {}               // there is one
  std::string controller() const override { return "this process"; }

 private:
  Hub& hub_;
  std::string identity_;
};

LocalControl::LocalControl(int size, Duration lease, Clock& clock)
    : hub_(std::make_unique<Hub>(size, lease, clock)) {}
LocalControl::~LocalControl() = default;

std::unique_ptr<ControlClient> LocalControl::connect(int rank) {
  const ClientConfig config{.rank = rank, .size = hub_->size, .token = {}, .heartbeat = kHeartbeat};
  return std::make_unique<ControlClient>(std::make_unique<Hub::Channel>(*hub_, rank), config,
                                         hub_->clock, hub_->clock.now() + kJoinTime);
}

void LocalControl::report_lost(int rank, const std::string& why) {
  {
    const std::scoped_lock lock(hub_->mutex);
    hub_->lost.emplace_back(rank, why);
  }
  hub_->changed.notify_one();
}

}  // namespace motley
