#include "comm/control/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

#include "comm/bootstrap/controller_host.h"
#include "comm/bootstrap/rendezvous_url.h"
#include "comm/control/client_state.h"
#include "comm/control/zmq_channel.h"
#include "comm/error.h"

namespace motley {
namespace {

constexpr Duration kByeTime = seconds(1);
constexpr Duration kShortCall = seconds(30);  // set() and add() are answered at once, or not at all

}  // namespace

ControlClient::ControlClient(std::unique_ptr<ControlChannel> channel, const ClientConfig& config,
                             Clock& clock, TimePoint deadline)
    : config_(config),
      clock_(clock),
      channel_(std::move(channel)),
      state_(std::make_unique<State>(config, clock.now())) {
  channel_->start(*this);
  std::unique_lock lock(state_->mutex);
  const auto settled = [this] { return state_->core.admitted() || state_->core.failure(); };
  const bool in_time = state_->changed.wait_until(lock, deadline, settled);
  const auto failure = state_->core.failure();
  lock.unlock();
  if (in_time && !failure) return;
  channel_->stop();  // before the members that its thread uses go
  const std::string who =
      fmt::format("rank {} of {}: join at {}", config.rank, config.size, channel_->controller());
  if (failure) throw Error(failure->code, fmt::format("{}: {}", who, failure->why));
  throw Error(ErrorCode::kTimeout,
              fmt::format("{}: the controller did not answer in time. Check that motley-controller "
                          "runs there and can be reached.",
                          who));
}

ControlClient::~ControlClient() {
  on_lost({});
  on_dropped({});
  {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_until(lock, clock_.now() + 2 * CallDump::kPatience,
                               [this] { return !state_->dumps.busy(); });
  }
  // Whoever leaves because of an error has not done its part: the others are told at once.
  try {
    if (std::uncaught_exceptions() > unwinding_) {
      resign("an exception ended its work");
    } else {
      call({.type = MessageType::kBye}, clock_.now() + kByeTime, "leaving the job");
    }
  } catch (const std::exception&) {
    // Whoever waits for this rank learns it from the lease.
  }
  channel_->stop();
}

void ControlClient::keep(std::unique_ptr<ControllerHost> host) { host_ = std::move(host); }

void ControlClient::set(std::string_view key, std::string_view value) {
  if (key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("store: a key of {} bytes with a value of {} bytes; the limits are {} and {}.",
                    key.size(), value.size(), kMaxKeyBytes, kMaxValueBytes));
  }
  call({.type = MessageType::kSet, .key = std::string(key), .value = std::string(value)},
       clock_.now() + kShortCall, fmt::format("set \"{}\"", key));
}

std::string ControlClient::get(std::string_view key, TimePoint deadline) {
  return call({.type = MessageType::kGet, .key = std::string(key)}, deadline,
              fmt::format("get \"{}\"", key))
      .value;
}

std::string ControlClient::get_from_living(std::string_view key, TimePoint deadline) {
  return call({.type = MessageType::kGet, .key = std::string(key)}, deadline,
              fmt::format("get \"{}\"", key), OnLoss::kFail)
      .value;
}

std::int64_t ControlClient::add(std::string_view key, std::int64_t amount) {
  return call({.type = MessageType::kAdd, .number = amount, .key = std::string(key)},
              clock_.now() + kShortCall, fmt::format("add to \"{}\"", key))
      .number;
}

Message ControlClient::supply(Message request, TimePoint deadline) {
  const std::string doing = fmt::format("supply \"{}\"", request.key);
  return call(std::move(request), deadline, doing);
}

void ControlClient::on_lost(std::function<void(int, const std::string&)> lost) {
  {
    const std::scoped_lock lock(state_->delivery);
    state_->on_lost = std::move(lost);
  }
  deliver_losses();
}

void ControlClient::on_dropped(std::function<void(const GroupTag&, int)> dropped) {
  const std::scoped_lock lock(state_->delivery);
  state_->on_dropped = std::move(dropped);
}

Duration ControlClient::round_trip() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->core.round_trip();
}

void ControlClient::tell_of(Recorder* recorder) {
  const std::scoped_lock telling(state_->telling);
  state_->recorder = recorder;
}

std::vector<CallRecord> ControlClient::own_calls() const {
  const std::scoped_lock telling(state_->telling);
  return state_->recorder == nullptr ? std::vector<CallRecord>{} : state_->recorder->last();
}

std::string ControlClient::dump(const std::string& folder, const std::string& name,
                                const std::string& why, LogSink log) {
  const std::vector<CallRecord> own = own_calls();
  const std::scoped_lock lock(state_->mutex);
  const std::string path = state_->dumps.begin(
      {.folder = folder, .name = name, .why = why, .rank = config_.rank, .size = config_.size}, own,
      clock_.now(), std::move(log));
  flush();
  return path;
}

void ControlClient::ask_report(const GroupTag& group, std::uint32_t number,
                               const std::vector<int>& members) {
  const std::scoped_lock lock(state_->mutex);
  state_->core.request({.type = MessageType::kReport,
                        .number = number,
                        .tag = group,
                        .ranks = {members.begin(), members.end()}},
                       clock_.now());
  flush();
}

std::optional<Report> ControlClient::last_report() const {
  const std::scoped_lock lock(state_->mutex);
  const Message* reply = state_->core.reply(Lane::kReport);
  if (reply == nullptr) return std::nullopt;
  return decode_report(reply->value, state_->core.reply_time(Lane::kReport));
}

Report ControlClient::report(const GroupTag& group, std::uint32_t number, TimePoint deadline) {
  const Message reply = call({.type = MessageType::kReport, .number = number, .tag = group},
                             deadline, "asking where the others are");
  const auto report = decode_report(reply.value, clock_.now());
  return report ? *report : Report{};
}

void ControlClient::watch_process(int rank, int pid) {
  if (rank != config_.rank) channel_->watch_process(rank, pid);
}

std::vector<int> ControlClient::lost_ranks() const {
  const std::scoped_lock lock(state_->mutex);
  std::vector<int> ranks;
  for (const ClientCore::Loss& loss : state_->losses) ranks.push_back(loss.rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void ControlClient::check_usable(TimePoint now, const std::string& doing, int leases) const {
  const std::string who = fmt::format("rank {} of {}: {}", config_.rank, config_.size, doing);
  if (const auto& failure = state_->core.failure()) {
    throw Error(failure->code,
                fmt::format("{}: the job goes on without this rank: {}.", who, failure->why),
                {config_.rank});
  }
  const Duration silence = state_->core.silence(now);
  const bool broken = leases == kUnlessBroken && state_->core.broken();
  if (broken || silence > std::max(leases, 1) * state_->core.lease()) {
    throw Error(ErrorCode::kPeerLost,
                fmt::format("{}: the controller at {} has not answered for {:.1f} s. Check that "
                            "motley-controller runs there.",
                            who, channel_->controller(), to_seconds(silence)));
  }
}

void ControlClient::check_all_live(const std::string& doing) const {
  const std::scoped_lock lock(state_->mutex);
  check_losses(doing);
}

void ControlClient::check_losses(const std::string& doing) const {
  if (state_->losses.empty()) return;
  const ClientCore::Loss& loss = state_->losses.front();
  throw Error(ErrorCode::kPeerLost,
              fmt::format("rank {} of {}: {}: rank {} is dead: {}. All ranks are needed.",
                          config_.rank, config_.size, doing, loss.rank, loss.why),
              {loss.rank});
}

Message ControlClient::call(Message request, TimePoint deadline, const std::string& doing,
                            OnLoss on_loss, int leases) {
  const Lane lane = *lane_of(request.type);
  const std::scoped_lock one_call(state_->calls[static_cast<std::size_t>(lane)]);
  std::unique_lock lock(state_->mutex);
  ClientCore& core = state_->core;
  check_usable(clock_.now(), doing, leases);
  core.request(std::move(request), clock_.now());
  flush();
  while (core.reply(lane) == nullptr) {
    const TimePoint now = clock_.now();
    try {
      check_usable(now, doing, leases);
      if (on_loss == OnLoss::kFail) check_losses(doing);
      if (now >= deadline) throw_no_answer(doing);
    } catch (...) {
      core.give_up(lane);
      throw;
    }
    // The control thread wakes us for every answer; the silence of the controller must be noticed,
    // too.
    state_->changed.wait_until(lock, std::min(deadline, now + core.lease()));
  }
  Message reply = *core.reply(lane);
  lock.unlock();
  if (reply.type == MessageType::kError) throw_error(reply, doing);
  return reply;
}

void ControlClient::throw_no_answer(const std::string& doing) const {
  throw Error(ErrorCode::kTimeout, fmt::format("rank {} of {}: {}: no answer in time.",
                                               config_.rank, config_.size, doing));
}

void ControlClient::throw_error(const Message& reply, const std::string& doing) const {
  throw Error(static_cast<ErrorCode>(reply.number),
              fmt::format("rank {} of {}: {}: {}", config_.rank, config_.size, doing, reply.value));
}

void ControlClient::flush() {
  for (const Message& message : state_->core.take_output()) channel_->send(message);
}

void ControlClient::on_message(const Message& message) {
  std::vector<Message> told, dropped;
  {
    const std::scoped_lock lock(state_->mutex);
    state_->core.on_message(message, clock_.now());
    told = state_->core.take_told();
    dropped = state_->core.take_dropped();
    flush();
  }
  for (const Message& each : told) take_told(each);
  state_->changed.notify_all();
  if (message.type == MessageType::kLost) deliver_losses();
  if (dropped.empty()) return;
  const std::scoped_lock delivering(state_->delivery);
  for (const Message& each : dropped) {
    if (state_->on_dropped) state_->on_dropped(each.tag, each.rank);
  }
}

void ControlClient::take_told(const Message& message) {
  const bool asked = message.type == MessageType::kTell;
  const std::vector<CallRecord> own = asked ? own_calls() : std::vector<CallRecord>{};
  const std::scoped_lock lock(state_->mutex);
  if (asked) state_->dumps.answer(message, own, clock_.now());
  if (!asked) state_->dumps.take(message, clock_.now());
  flush();
}

TimePoint ControlClient::on_time() {
  TimePoint next;
  tell_progress();
  {
    const std::scoped_lock lock(state_->mutex);
    state_->core.on_time(clock_.now());
    if (state_->core.take_move()) channel_->try_next();
    state_->ask_peers(clock_.now());
    state_->dumps.on_time(clock_.now());
    flush();
    next = std::min(state_->core.next_timer(), state_->dumps.next_timer());
  }
  state_->changed.notify_all();
  deliver_losses();
  return next;
}

// Just before a sign of life is due.
void ControlClient::tell_progress() {
  {
    const std::scoped_lock lock(state_->mutex);
    if (clock_.now() < state_->core.next_timer()) return;
  }
  const std::scoped_lock telling(state_->telling);
  if (state_->recorder == nullptr) return;
  const TimePoint now = clock_.now();
  state_->recorder->tick(now);
  const std::scoped_lock lock(state_->mutex);
  state_->core.set_progress(encode(Progress::of(*state_->recorder), now));
}

void ControlClient::watch_peers(std::unique_ptr<PeerProbe> probe) {
  const std::scoped_lock lock(state_->mutex);
  state_->probe = std::move(probe);
  state_->core.be_patient_with_exits();
  channel_->watch_socket(state_->probe->descriptor());
}

void ControlClient::resign(const std::string& why) {
  std::unique_lock lock(state_->mutex);
  state_->core.resign(why);
  flush();
  state_->changed.wait_until(lock, clock_.now() + kByeTime,
                             [this] { return state_->core.failure().has_value(); });
}

void ControlClient::on_socket() {
  const std::scoped_lock lock(state_->mutex);
  state_->probe->receive(clock_.now());
}

void ControlClient::on_broken() {
  const std::scoped_lock lock(state_->mutex);
  state_->core.connection_broken();
  state_->changed.notify_all();
}

void ControlClient::on_exit(int rank) {
  const std::scoped_lock lock(state_->mutex);
  state_->core.process_exited(rank, clock_.now());
  flush();
}

void ControlClient::deliver_losses() {
  const std::scoped_lock delivering(state_->delivery);
  std::vector<ClientCore::Loss> losses;
  {
    const std::scoped_lock lock(state_->mutex);
    for (ClientCore::Loss& loss : state_->core.take_losses()) {
      state_->losses.push_back(std::move(loss));
    }
    state_->changed.notify_all();
    if (!state_->on_lost || state_->delivered == state_->losses.size()) return;
    losses.assign(state_->losses.begin() + static_cast<std::ptrdiff_t>(state_->delivered),
                  state_->losses.end());
    state_->delivered = state_->losses.size();
  }
  for (const ClientCore::Loss& loss : losses) state_->on_lost(loss.rank, loss.why);
}

std::unique_ptr<ControlClient> connect_control(const Options& options, Clock& clock,
                                               int controller_rank) {
  // The number tells this process from any other that ever held the rank.
  std::random_device entropy;
  const std::uint64_t incarnation = (std::uint64_t{entropy()} << 32) | entropy();
  const std::vector<std::string> controllers = addresses_in(options.controller);
  auto channel =
      make_zmq_channel({.controllers = controllers,
                        .identity = fmt::format("{}.{:016x}", options.rank, incarnation)},
                       clock);
  const ClientConfig config{.rank = options.rank,
                            .size = options.size,
                            .token = options.token,
                            .heartbeat = options.heartbeat,
                            .controller_rank = controller_rank,
                            .controllers = static_cast<int>(controllers.size())};
  return std::make_unique<ControlClient>(std::move(channel), config, clock,
                                         clock.now() + options.join_timeout);
}

}  // namespace motley
