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
#include "comm/control/predecessors.h"
#include "comm/control/succession.h"
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
        config{.size = options.size, .token = options.token, .lease = options.lease},
        on_end(options.on_end),
        succession({.before = options.standby_for, .token = options.token, .lease = options.lease},
                   clock_.now()),
        predecessors(context, options.standby_for),
        socket(context, zmq::socket_type::router) {
    begin();  // which checks the options
    if (!succession.serves()) core.reset();
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::ipv6, options.bind.find('[') != std::string::npos);
    socket.set(zmq::sockopt::router_mandatory, true);  // else messages to nobody vanish in silence
    socket.set(zmq::sockopt::maxmsgsize, std::int64_t{4 * kMaxValueBytes});
    socket.set(zmq::sockopt::sndhwm, kQueued);
    socket.set(zmq::sockopt::rcvhwm, kQueued);
    bind(options);
    address = reachable_url(socket.get(zmq::sockopt::last_endpoint));
    thread = std::thread([this] { run(); });
    try {
      wait_for_first(options, clock.now() + options.first_timeout);
    } catch (...) {
      stop();
      throw;
    }
  }

  void wait_for_first(const ControllerOptions& options, TimePoint deadline) {
    if (options.standby_for.empty()) return;
    std::unique_lock lock(mutex);
    changed.wait_until(lock, deadline, [this] { return state != Succession::State::kLooking; });
    const std::string who = fmt::format("controller at {}", address);
    if (!ended_for.empty() && state == Succession::State::kEnded)
      throw Error(end_code, fmt::format("{}: {}", who, ended_for));
    if (state != Succession::State::kLooking) return;
    throw Error(
        ErrorCode::kTimeout,
        fmt::format("{}: none of the controllers that it stands by for, {}, has answered "
                    "within {:g} s. Start the first of a job before its standbys, and "
                    "without standby_for.",
                    who, fmt::join(options.standby_for, ", "), to_seconds(options.first_timeout)));
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

  ~Impl() { stop(); }

  void stop() {
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
      predecessors.receive([this](std::size_t which, const Message& answer) {
        succession.on_answer(which, answer, clock.now());
      });
      succession.on_time(clock.now());
      take_turn();
      if (core) {
        core->on_time(clock.now());
        for (const ControllerCore::Output& output : core->take_output()) send(output);
        succession.serves_in(core->epoch(), core->joined());
      }
      if (const auto question = succession.take_question()) predecessors.ask(*question);
      note_state();
      if (succession.failure()) return end();
      wait_until(std::min(core ? core->next_timer() : TimePoint::max(), succession.next_timer()));
    }
  }

  void begin() {
    do {
      config.epoch = draw_epoch();
    } while (config.epoch == (succession.last_epoch() & 0xffff));
    core = std::make_unique<ControllerCore>(config, clock.now());
    core->succeed(succession.last_epoch(), clock.now());
  }

  // Begins to serve, or ends it, as the others do or do not.
  void take_turn() {
    if (succession.serves() == (core != nullptr)) return;
    if (core) {
      core.reset();  // ranks hear nothing any more, and look elsewhere
    } else {
      begin();
    }
  }

  // Another serves: ranks that are still here see the connection end.
  void end() {
    socket.close();
    if (on_end) on_end(succession.failure()->why);
  }

  // False once the server is to stop.
  bool take_orders() {
    std::vector<std::pair<int, std::string>> lost;
    {
      const std::scoped_lock lock(mutex);
      if (stopping) return false;
      lost.swap(reports);
    }
    for (const auto& [rank, why] : lost) {
      if (core) core->report_lost(rank, why);
    }
    return true;
  }

  void note_state() {
    const int now_live = core ? core->live() : 0;
    if (now_live == live && succession.state() == state) return;  // only this thread writes them
    {
      const std::scoped_lock lock(mutex);
      live = now_live;
      state = succession.state();
      if (const auto& failure = succession.failure()) {
        end_code = failure->code;
        ended_for = failure->why;
      }
    }
    serves = succession.serves();
    changed.notify_all();
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
      refused = foreign + (core ? core->refused() : 0);
    }
  }

  void take(const std::string& from, ConstBytes bytes) {
    if (const auto message = decode(bytes)) {
      if (message->type == MessageType::kSuccession)
        return send({from, succession.on_question(*message)});
      if (core) core->on_message(from, *message, clock.now());
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
    predecessors.add_to(items);
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
  ControllerConfig config;
  const std::function<void(const std::string&)> on_end;
  std::unique_ptr<ControllerCore> core;  // of `thread`; null while another serves
  Succession succession;                 // of `thread`
  zmq::context_t context{1};
  Predecessors predecessors;  // of `thread`
  zmq::socket_t socket;       // the same
  std::string address;
  std::uint64_t foreign = 0;  // of `thread`: what is no message
  std::atomic<std::uint64_t> refused{0};
  Wake wake;
  std::mutex mutex;  // guards what follows
  std::vector<std::pair<int, std::string>> reports;
  bool stopping = false;
  int live = 0;  // ranks that have joined and are neither dead nor gone
  Succession::State state = Succession::State::kLooking;
  ErrorCode end_code{};  // kEnded
  std::string ended_for;
  std::condition_variable changed;
  std::atomic<bool> serves{false};
  std::thread thread;
};

ControllerServer::ControllerServer(const ControllerOptions& options, Clock& clock)
    : impl_(std::make_unique<Impl>(options, clock)) {}
ControllerServer::ControllerServer(ControllerServer&&) noexcept = default;
ControllerServer& ControllerServer::operator=(ControllerServer&&) noexcept = default;
ControllerServer::~ControllerServer() = default;

const std::string& ControllerServer::address() const noexcept { return impl_->address; }

bool ControllerServer::serves() const noexcept { return impl_->serves; }

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
  impl_->changed.wait(lock, [this] { return impl_->live == 0; });
}

}  // namespace motley
