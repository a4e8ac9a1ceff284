#include "runtime/launch/supervisor.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>
#include <vector>

#include "comm/error.h"

namespace motley::runtime {
namespace {

constexpr Duration kDrainTime = seconds(0.5);  // for output of a rank that has ended
constexpr Duration kLongestWait = seconds(5);
constexpr int kReadsAtEnd = 64;  // a pipe holds 64 KiB; a foreign writer may go on for ever

sigset_t signals_of_a_job() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

SignalQueue::SignalQueue() {
  const sigset_t set = signals_of_a_job();
  sigprocmask(SIG_BLOCK, &set, &before_);
  pipe_before_ = std::signal(SIGPIPE, SIG_IGN);
  fd_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.is_open()) throw_errno("create a signalfd");
}

SignalQueue::~SignalQueue() {
  std::signal(SIGPIPE, pipe_before_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int SignalQueue::take() {
  signalfd_siginfo info{};
  if (read(fd_.get(), &info, sizeof info) != sizeof info) return 0;
  return static_cast<int>(info.ssi_signo);
}

Supervisor::Supervisor(const LaunchOptions& options, SignalQueue& signals,
                       std::deque<ControllerProcess>& controllers)
    : options_(options),
      signals_(signals),
      policy_(options.size, options.when_lost, options.grace) {
  for (ControllerProcess& controller : controllers) controllers_.push_back(&controller);
  sinks_.emplace_back(STDOUT_FILENO);
  // With one sink for both, no line cuts another in two, and lines keep their order.
  if (!is_same_file(STDOUT_FILENO, STDERR_FILENO)) sinks_.emplace_back(STDERR_FILENO);
}

void Supervisor::start(SpawnOptions spawn) {
  Pipe out = make_pipe();
  Pipe error = make_pipe();
  spawn.out = out.write.get();
  spawn.error = error.write.get();
  const bool labelled = options_.labels == Labels::kRank;
  const std::string prefix = labelled ? fmt::format("[{}] ", ranks_.size()) : "";
  Rank& rank = ranks_.emplace_back(Process(spawn));
  guard_.watch(rank.pid);
  rank.streams.push_back({std::move(out.read), LineBuffer(prefix, rank.last), &sinks_.front()});
  rank.streams.push_back({std::move(error.read), LineBuffer(prefix, rank.last), &sinks_.back()});
  for (const Stream& stream : rank.streams) set_nonblocking(stream.fd);
}

int Supervisor::run() {
  while (!is_finished()) {
    wait();
    take_signals();
    reap();
    keep_time(clock_.now());
  }
  return policy_.exit_code();
}

bool Supervisor::is_finished() const {
  const auto is_written = [](const Sink& sink) { return sink.empty(); };
  const auto is_closed = [](const Rank& rank) {
    return std::ranges::none_of(rank.streams, [](const Stream& s) { return s.fd.is_open(); });
  };
  return policy_.running() == 0 && std::ranges::all_of(ranks_, is_closed) &&
         std::ranges::all_of(sinks_, is_written);
}

void Supervisor::wait() {
  std::vector<pollfd> items = {{.fd = signals_.fd(), .events = POLLIN}};
  for (const Sink& sink : sinks_) {
    if (!sink.empty()) items.push_back({.fd = sink.fd(), .events = POLLOUT});
  }
  const std::size_t first = items.size();
  std::vector<Stream*> streams;
  for (Rank& rank : ranks_) {
    for (Stream& stream : rank.streams) {
      if (!stream.fd.is_open() || stream.sink->full()) continue;
      items.push_back({.fd = stream.fd.get(), .events = POLLIN});
      streams.push_back(&stream);
    }
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(time_to_wait(clock_.now()));
  if (poll(items.data(), items.size(), static_cast<int>(left.count())) < 0) {
    if (errno != EINTR) throw_errno("wait for the ranks");
    return;
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (items[first + i].revents != 0) read_some(*streams[i]);
  }
  for (Sink& sink : sinks_) sink.write_ready();
}

Duration Supervisor::time_to_wait(TimePoint now) const {
  TimePoint until = now + kLongestWait;
  if (const auto timer = policy_.next_timer()) until = std::min(until, *timer);
  for (const Rank& rank : ranks_) {
    const bool is_open =
        std::ranges::any_of(rank.streams, [](const Stream& s) { return s.fd.is_open(); });
    if (!rank.running && is_open) until = std::min(until, std::max(rank.drained, now));
  }
  return std::max(until - now, Duration::zero());
}

void Supervisor::read_some(Stream& stream) {
  char bytes[64 << 10];
  const ssize_t got = read(stream.fd.get(), bytes, sizeof bytes);
  if (got > 0) {
    stream.lines.add({bytes, static_cast<std::size_t>(got)}, stream.sink->text());
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    close(stream);
  }
}

void Supervisor::close(Stream& stream) {
  stream.lines.finish(stream.sink->text());
  stream.fd.close();
}

// Whoever holds the pipe of a rank that has ended is no part of the job any more.
void Supervisor::close_drained(TimePoint now) {
  for (Rank& rank : ranks_) {
    if (rank.running || now < rank.drained) continue;
    for (Stream& stream : rank.streams) {
      if (stream.fd.is_open() && !stream.sink->full()) close(stream);
    }
  }
}

void Supervisor::take_signals() {
  while (const int signal = signals_.take()) {
    if (signal == SIGCHLD) continue;
    const int passed = policy_.got_signal(signal);
    if (passed == SIGKILL || (policy_.running() == 0 && policy_.ending())) {
      for (Sink& sink : sinks_) sink.give_up();  // its reader may be what keeps us
    } else if (policy_.ending()) {
      say(fmt::format("{} passed on to {} ranks{}.", signal_name(passed), policy_.running(),
                      signal == SIGINT ? "; a second one kills them" : ""));
    }
    signal_ranks(passed);
  }
}

void Supervisor::signal_ranks(int signal) {
  for (const Rank& rank : ranks_) rank.process.signal(signal);
}

// Of those that ended together, one that was killed comes first: the others may have failed for it.
void Supervisor::reap() {
  std::vector<std::pair<int, ExitStatus>> over;
  for (bool more = true; more;) {
    more = false;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      Process& process = ranks_[static_cast<std::size_t>(rank)].process;
      if (const auto status = process.reap()) {
        over.emplace_back(rank, *status);
        more = true;
      }
    }
  }
  std::ranges::stable_partition(over, [](const auto& one) { return one.second.signal != 0; });
  for (const auto& [rank, status] : over) ended(rank, status);
  reap_controllers();
}

void Supervisor::reap_controllers() {
  for (std::size_t i = 0; i < controllers_.size();) {
    const auto status = controllers_[i]->reap();
    if (!status) {
      ++i;
      continue;
    }
    const std::string what =
        fmt::format("the controller at {} {}", controllers_[i]->address(), describe(*status));
    controllers_.erase(controllers_.begin() + static_cast<std::ptrdiff_t>(i));
    say(controllers_.empty()
            ? what + ". Ranks that need it will fail at their deadlines."
            : fmt::format("{}. The job goes on with that at {}, without a standby.", what,
                          controllers_.front()->address()));
  }
}

void Supervisor::ended(int number, const ExitStatus& status) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  const TimePoint now = clock_.now();
  guard_.forget(rank.pid);
  rank.running = false;
  rank.drained = now + kDrainTime;
  // First of all: the others shall not wait for it. One that left in good order is not lost, which
  // the controller knows.
  for (ControllerProcess* controller : controllers_) {
    controller->report_lost(number, "it " + describe(status));
  }
  for (Stream& stream : rank.streams) {
    for (int i = 0; i < kReadsAtEnd && stream.fd.is_open(); ++i) read_some(stream);
  }
  if (!status.good())
    report(number, status, now);
  else
    policy_.ended(status, now);
}

void Supervisor::report(int number, const ExitStatus& status, TimePoint now) {
  const Rank& rank = ranks_[static_cast<std::size_t>(number)];
  const bool in_full = policy_.ended(status, now);
  std::string text =
      fmt::format("rank {} of {} (process {}) {} after {:.1f} s", number, options_.size, rank.pid,
                  describe(status), to_seconds(now - started_));
  if (!in_full) return say(text + ".");
  const std::size_t count = rank.last.lines().size();
  say(fmt::format("{}. {}", text,
                  count == 0   ? "It wrote nothing."
                  : count == 1 ? "Its last line:"
                               : fmt::format("Its last {} lines:", count)));
  for (const std::string& line : rank.last.lines()) say(fmt::format("  [{}] {}", number, line));
  if (policy_.running() == 0) return;
  say(policy_.ending() ? fmt::format("the other {} have {:g} s to end by themselves.",
                                     policy_.running(), to_seconds(options_.grace))
                       : fmt::format("the other {} go on.", policy_.running()));
}

void Supervisor::keep_time(TimePoint now) {
  close_drained(now);
  const bool is_read = std::ranges::none_of(sinks_, [](const Sink& sink) { return sink.broken(); });
  if (!is_read && !policy_.ending()) policy_.lost_reader(now);
  if (const int signal = policy_.take_due(now); signal != 0 && policy_.running() > 0) {
    say(fmt::format("{} to the {} ranks that still run.", signal_name(signal), policy_.running()));
    signal_ranks(signal);
  }
}

void Supervisor::say(const std::string& text) {
  sinks_.back().text() += fmt::format("motley-run: {}\n", text);
}

}  // namespace motley::runtime
