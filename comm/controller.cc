#include "comm/controller.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "comm/bootstrap/endpoint.h"
#include "comm/bootstrap/interface.h"
#include "comm/control/controller_core.h"
#include "comm/control/wake.h"
#include "comm/error.h"

namespace motley {
namespace {

// So many messages are taken before timers and answers have their turn.
constexpr int kBatch = 1024;
// Messages of one sender that wait for their turn, and answers that wait for it to take them: who
// sends more is made to wait, and nobody else; what more there is for one that takes nothing is
// dropped, as a network may do.
constexpr int kQueued = 4096;

// Another than that of the controller before this one, if there was one; see ControllerConfig.
std::uint32_t draw_epoch() {
  std::uint16_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) throw_errno("draw an epoch");
  return std::max<std::uint32_t>(number, 1);
}

}  // namespace

std::string make_token() {
  std::array<std::uint8_t, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw_errno("draw a random token");
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

// The thin shell: a ROUTER socket around ControllerCore, on a thread.
struct ControllerServer::Impl {
  Impl(const ControllerOptions& options, Clock& clock_)
      : clock(clock_),
        core({.size = options.size,
              .token = options.token,
              .lease = options.lease,
              .epoch = draw_epoch()},
             clock_.now()),
        socket(context, zmq::socket_type::router) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::ipv6, options.bind.find('[') != std::string::npos);
    socket.set(zmq::sockopt::router_mandatory, true);  // else messages to nobody vanish in silence
    socket.set(zmq::sockopt::maxmsgsize, std::int64_t{4 * kMaxValueBytes});
    socket.set(zmq::sockopt::sndhwm, kQueued);
    socket.set(zmq::sockopt::rcvhwm, kQueued);
    bind(options);
    address = reachable_url(socket.get(zmq::sockopt::last_endpoint));
    thread = std::thread([this] { run(); });
  }

  void bind(const ControllerOptions& options) {
    const bool any_port = options.bind.ends_with(":0");
    const PortRange range = any_port ? PortRange::parse(options.ports) : PortRange{};
    if (range.any()) {
      std::string where = options.bind;
      if (any_port) where.back() = '*';  // how ZeroMQ spells "any port"
      const int error = try_bind(where);
      if (error != 0) throw_unbound(options.bind, error);
      return;
    }
    const std::string host = options.bind.substr(0, options.bind.size() - 1);
    for (int port = range.low; port <= range.high; ++port) {
      const int error = try_bind(host + std::to_string(port));
      if (error == 0) return;
      if (error != EADDRINUSE && error != EACCES) throw_unbound(options.bind, error);
    }
    throw Error(ErrorCode::kIo,
                fmt::format("controller: all ports in {} are in use at \"{}\". Widen the range "
                            "(MOTLEY_PORTS), or end what listens there.",
                            range.to_text(), options.bind));
  }

  // 0, or the reason why not.
  int try_bind(const std::string& where) {
    try {
      socket.bind(where);
      return 0;
    } catch (const zmq::error_t& error) {
      return error.num();
    }
  }

  [[noreturn]] static void throw_unbound(const std::string& where, int error) {
    throw Error(
        error == EINVAL || error == EPROTONOSUPPORT ? ErrorCode::kInvalid : ErrorCode::kIo,
        fmt::format("controller: cannot listen at \"{}\": {}. Use tcp://address:port with an "
                    "address of this host and a free port, or port 0.",
                    where, zmq_strerror(error)));
  }

  ~Impl() {
    {
      const std::scoped_lock lock(mutex);
      stopping = true;
    }
    wake.signal();
    thread.join();
  }

  void run() {
    while (take_orders()) {
      receive();
      core.on_time(clock.now());
      for (const ControllerCore::Output& output : core.take_output()) send(output);
      note_live();
      wait_until(core.next_timer());
    }
  }

  // False once the server is to stop.
  bool take_orders() {
    std::vector<std::pair<int, std::string>> lost;
    {
      const std::scoped_lock lock(mutex);
      if (stopping) return false;
      lost.swap(reports);
    }
    for (const auto& [rank, why] : lost) core.report_lost(rank, why);
    return true;
  }

  void note_live() {
    if (core.live() == live) return;  // only this thread writes it
    {
      const std::scoped_lock lock(mutex);
      live = core.live();
    }
    left.notify_all();
  }

  // A message has two frames, who and what. Everything else is foreign and dropped.
  void receive() {
    for (int i = 0; i < kBatch; ++i) {
      std::vector<zmq::message_t> frames;
      if (!receive_frames(frames)) return;
      if (frames.size() == 2) {
        take(frames[0].to_string(), {frames[1].data<std::byte>(), frames[1].size()});
      } else {
        ++foreign;
      }
      refused = foreign + core.refused();
    }
  }

  void take(const std::string& from, ConstBytes bytes) {
    if (const auto message = decode(bytes)) {
      core.on_message(from, *message, clock.now());
      return;
    }
    ++foreign;
    // Any message of this version tells one of another that it is none of ours.
    if (refusal_of(bytes)) send({from, {.type = MessageType::kRefused}});
  }

  bool receive_frames(std::vector<zmq::message_t>& frames) {
    try {
      while (true) {
        zmq::message_t frame;
        if (!socket.recv(frame, zmq::recv_flags::dontwait)) return false;
        const bool more = frame.more();
        if (frames.size() < 3) frames.push_back(std::move(frame));
        if (!more) return true;
      }
    } catch (const zmq::error_t& error) {
      if (error.num() == EINTR) return false;
      throw;
    }
  }

  void send(const ControllerCore::Output& output) {
    const std::vector<std::byte> bytes = encode(output.message);
    try {
      const auto flags = zmq::send_flags::dontwait;
      if (!socket.send(zmq::buffer(output.to), flags | zmq::send_flags::sndmore)) return;
      (void)socket.send(zmq::buffer(bytes), flags);
    } catch (const zmq::error_t& error) {
      // Nobody there now: the rank repeats its request when it is back, or its lease runs out.
      if (error.num() != EHOSTUNREACH && error.num() != EINTR) throw;
    }
  }

  void wait_until(TimePoint next) {
    std::vector<zmq::pollitem_t> items = {{socket.handle(), 0, ZMQ_POLLIN, 0},
                                          {nullptr, wake.fd(), ZMQ_POLLIN, 0}};
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(next - clock.now());
    try {
      zmq::poll(items, std::max(rest, std::chrono::milliseconds(0)));
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
      return;
    }
    if (items[1].revents != 0) wake.clear();
  }

  Clock& clock;
  ControllerCore core;  // of `thread`
  zmq::context_t context{1};
  zmq::socket_t socket;  // of `thread`
  std::string address;
  std::uint64_t foreign = 0;  // of `thread`: what is no message
  std::atomic<std::uint64_t> refused{0};
  Wake wake;
  std::mutex mutex;  // guards what follows
  std::vector<std::pair<int, std::string>> reports;
  bool stopping = false;
  int live = 0;  // ranks that have joined and are neither dead nor gone
  std::condition_variable left;
  std::thread thread;
};

ControllerServer::ControllerServer(const ControllerOptions& options, Clock& clock)
    : impl_(std::make_unique<Impl>(options, clock)) {}
ControllerServer::ControllerServer(ControllerServer&&) noexcept = default;
ControllerServer& ControllerServer::operator=(ControllerServer&&) noexcept = default;
ControllerServer::~ControllerServer() = default;

const std::string& ControllerServer::address() const noexcept { return impl_->address; }

std::uint64_t ControllerServer::refused() const noexcept { return impl_->refused; }

void ControllerServer::report_lost(int rank, const std::string& why) {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->reports.emplace_back(rank, why);
  }
  impl_->wake.signal();
}

// No deadline: whoever is live says so within each lease.
void ControllerServer::wait_until_left() {
  std::unique_lock lock(impl_->mutex);
  impl_->left.wait(lock, [this] { return impl_->live == 0; });
}

}  // namespace motley
