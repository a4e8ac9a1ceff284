#include "comm/control/zmq_channel.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "comm/control/wake.h"
#include "comm/error.h"

namespace motley {
namespace {

constexpr const char* kMonitor = "inproc://connection";

// Readable once the process has ended. -1 where the kernel has no such thing or forbids it.
int open_pidfd(int pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

class ZmqChannel final : public ControlChannel {
 public:
  ZmqChannel(const ZmqChannelOptions& options, Clock& clock)
      : clock_(clock),
        controllers_(options.controllers),
        socket_(context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::ipv6, true);
    socket_.set(zmq::sockopt::routing_id, options.identity);
    socket_.set(zmq::sockopt::immediate, true);  // nothing piles up while there is no connection
    socket_.set(zmq::sockopt::reconnect_ivl, 20);
    socket_.set(zmq::sockopt::reconnect_ivl_max, 1000);
    socket_.set(zmq::sockopt::maxmsgsize, std::int64_t{4 * kMaxValueBytes});
    if (zmq_socket_monitor(socket_.handle(), kMonitor, ZMQ_EVENT_DISCONNECTED) != 0) {
      throw_errno("watch the connection to the controller");
    }
    monitor_.connect(kMonitor);
    // What is no address is found here, not by the thread. The first is the one that is kept.
    for (std::size_t i = controllers_.size(); i-- > 0;) {
      connect(i);
      if (i > 0) disconnect(i);
    }
  }

  ~ZmqChannel() override {
    stop();
    for (const Process& process : processes_) close(process.fd);
  }

  void start(ChannelEvents& events) override {
    thread_ = std::thread([this, &events] { run(events); });
  }

  void stop() noexcept override {
    if (!thread_.joinable()) return;
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake_.signal();
    thread_.join();
  }

  void send(const Message& message) override {
    {
      const std::scoped_lock lock(mutex_);
      to_send_.push_back(encode(message));
    }
    wake_.signal();
  }

  void watch_process(int rank, int pid) override {
    const int fd = open_pidfd(pid);
    if (fd < 0 && errno != ESRCH) return;  // the lease watches over it all the same
    {
      const std::scoped_lock lock(mutex_);
      to_watch_.push_back({rank, fd});
    }
    wake_.signal();
  }

  void watch_socket(int descriptor) override {
    watched_ = descriptor;
    wake_.signal();
  }

  void try_next() override {
    ++moves_;
    wake_.signal();
  }

  std::string controller() const override { return controllers_[current_]; }

 private:
  struct Process {
    int rank;
    int fd;  // -1: has ended before it could be watched
  };

  void connect(std::size_t which) {
    try {
      socket_.connect(controllers_[which]);
    } catch (const zmq::error_t& error) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("control: cannot use controller \"{}\": {}. Set MOTLEY_CONTROLLER to "
                              "tcp://host:port.",
                              controllers_[which], error.what()));
    }
  }

  void disconnect(std::size_t which) {
    try {
      socket_.disconnect(controllers_[which]);
    } catch (const zmq::error_t& error) {
      if (error.num() != ENOENT) throw;  // it has ended by itself
    }
  }

  // ZeroMQ looks names up and connects by itself, as often as it takes, so nothing fails here that
  // did not in the beginning.
  void move_on() {
    for (int left = moves_.exchange(0) % static_cast<int>(controllers_.size()); left > 0; --left) {
      const std::size_t next = (current_ + 1) % controllers_.size();
      disconnect(current_);
      connect(next);
      current_ = next;
    }
  }

  void run(ChannelEvents& events) {
    while (take_orders(events)) {
      move_on();
      receive(events);
      const TimePoint next = events.on_time();
      if (send_queued()) continue;
      wait_until(next, events);
    }
  }

  // False once stop() was called.
  bool take_orders(ChannelEvents& events) {
    std::vector<Process> added;
    {
      const std::scoped_lock lock(mutex_);
      if (stopping_) return false;
      added.swap(to_watch_);
    }
    for (const Process& process : added) {
      if (process.fd < 0) {
        events.on_exit(process.rank);
      } else {
        processes_.push_back(process);
      }
    }
    return true;
  }

  void receive(ChannelEvents& events) {
    zmq::message_t frame;
    bool broken = false;
    while (receive_frame(monitor_, frame)) broken = true;  // it tells of nothing else
    if (broken) events.on_broken();
    while (receive_frame(socket_, frame)) {
      const ConstBytes bytes(frame.data<std::byte>(), frame.size());
      auto message = decode(bytes);
      if (!message) message = refusal_of(bytes);
      if (message) events.on_message(*message);  // anything else is not ours to understand
    }
  }

  static bool receive_frame(zmq::socket_t& socket, zmq::message_t& frame) {
    try {
      return socket.recv(frame, zmq::recv_flags::dontwait).has_value();
    } catch (const zmq::error_t& error) {
      if (error.num() == EINTR) return false;  // the poll comes back to it
      throw;
    }
  }

  // True if there was anything to send.
  bool send_queued() {
    std::vector<std::vector<std::byte>> messages;
    {
      const std::scoped_lock lock(mutex_);
      messages.swap(to_send_);
    }
    for (const auto& message : messages) {
      try {
        // Without a connection the message is dropped here; whoever waits for an answer repeats it.
        (void)socket_.send(zmq::buffer(message), zmq::send_flags::dontwait);
      } catch (const zmq::error_t& error) {
        if (error.num() != EINTR) throw;
      }
    }
    return !messages.empty();
  }

  void wait_until(TimePoint next, ChannelEvents& events) {
    std::vector<zmq::pollitem_t> items = {{socket_.handle(), 0, ZMQ_POLLIN, 0},
                                          {nullptr, wake_.fd(), ZMQ_POLLIN, 0},
                                          {monitor_.handle(), 0, ZMQ_POLLIN, 0}};
    const int watched = watched_;
    if (watched >= 0) items.push_back({nullptr, watched, ZMQ_POLLIN, 0});
    const std::size_t others = items.size();
    for (const Process& process : processes_) items.push_back({nullptr, process.fd, ZMQ_POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - clock_.now());
    try {
      zmq::poll(items, std::max(left, std::chrono::milliseconds(0)));
    } catch (const zmq::error_t& error) {
      if (error.num() == EINTR) return;
      throw;
    }
    if (items[1].revents != 0) wake_.clear();
    if (watched >= 0 && items[3].revents != 0) events.on_socket();
    for (std::size_t i = items.size(); i-- > others;) {
      if (items[i].revents == 0) continue;
      const Process ended = processes_[i - others];
      processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(i - others));
      close(ended.fd);
      events.on_exit(ended.rank);
    }
  }

  Clock& clock_;
  const std::vector<std::string> controllers_;
  std::atomic<std::size_t> current_{0};  // written by thread_ only
  std::atomic<int> moves_{0};
  zmq::context_t context_{1};
  zmq::socket_t socket_;                                     // of thread_, once that runs
  zmq::socket_t monitor_{context_, zmq::socket_type::pair};  // the same; tells when it breaks
  std::vector<Process> processes_;                           // of thread_
  std::atomic<int> watched_{-1};
  Wake wake_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::vector<std::byte>> to_send_;
  std::vector<Process> to_watch_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ControlChannel> make_zmq_channel(const ZmqChannelOptions& options, Clock& clock) {
  return std::make_unique<ZmqChannel>(options, clock);
}

}  // namespace motley
