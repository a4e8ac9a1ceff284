#include "comm/cli/perf/machine.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "comm/cli/perf/sampling.h"
#include "comm/cli/perf/subject.h"
#include "comm/clock.h"
#include "comm/kernel/combine.h"

namespace motley::perf {
namespace {

constexpr std::size_t kLine = 128;  // two cache lines, as some processors fetch them in pairs
constexpr Duration kPatience = seconds(30);

// Shared by the processes of one measurement.
struct Board {
  alignas(kLine) std::atomic<int> flags[2 * kLine / sizeof(int)];  // [0] and [kStride] are used
  alignas(kLine) std::atomic<int> arrived{0};
  alignas(kLine) std::atomic<bool> given_up{false};
  alignas(kLine) double result = 0;

  static constexpr std::size_t kStride = kLine / sizeof(int);
};

// Spins until `done`; false once the others have taken too long or given up.
template <class Done>
bool spin(Board& board, const Done& done) {
  const TimePoint deadline = Clock::real().now() + kPatience;
  for (int i = 1; !done(); ++i) {
    if (i % 4096 != 0) continue;
    if (Clock::real().now() > deadline) board.given_up = true;
    if (board.given_up) return false;
  }
  return true;
}

bool meet(Board& board, int processes, int round) {
  board.arrived.fetch_add(1);
  return spin(board, [&] { return board.arrived.load() >= processes * round; });
}

std::vector<int> cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> result;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return result;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) result.push_back(core);
  }
  return result;
}

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

// Runs body(process, board) in so many processes, each on a core of its own, and returns
// board.result; 0 if one of them failed.
template <class Body>
double in_processes(int processes, const Body& body) {
  const std::vector<int> all = cores();
  if (static_cast<int>(all.size()) < processes) return 0;
  void* const memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  Board* const board = new (memory) Board;
  std::vector<pid_t> children;
  bool good = true;
  for (int process = 0; process < processes && good; ++process) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      pin(all[static_cast<std::size_t>(process)]);
      ::_exit(body(process, *board) ? 0 : 1);
    }
    good = pid > 0;
    if (good) children.push_back(pid);
  }
  if (!good) board->given_up = true;
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    good = good && status == 0;
  }
  const double result = good ? board->result : 0;
  ::munmap(memory, sizeof(Board));
  return result;
}

bool exchange(int process, Board& board) {
  constexpr int kRounds = 5000;
  std::atomic<int>& mine = board.flags[static_cast<std::size_t>(process) * Board::kStride];
  std::atomic<int>& theirs = board.flags[static_cast<std::size_t>(1 - process) * Board::kStride];
  std::vector<double> times;
  int number = 0;
  for (int sample = 0; sample < 10; ++sample) {
    const TimePoint start = Clock::real().now();
    for (int i = 0; i < kRounds; ++i) {
      mine.store(++number, std::memory_order_release);
      if (!spin(board, [&] { return theirs.load(std::memory_order_acquire) >= number; })) {
        return false;
      }
    }
    if (sample > 0) times.push_back(to_seconds(Clock::real().now() - start) / kRounds * 1e9);
  }
  if (process == 0) board.result = quantile(times, 0.5);
  return true;
}

using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);

bool copy(int process, int processes, std::size_t bytes, Copy copy_bytes, Board& board) {
  constexpr int kSamples = 9;
  const auto from = private_storage(bytes);
  const auto to = private_storage(bytes);
  std::vector<double> times;
  for (int sample = 0; sample < kSamples + 1; ++sample) {
    if (!meet(board, processes, 2 * sample + 1)) return false;
    const TimePoint start = Clock::real().now();
    copy_bytes(to->bytes().data(), from->bytes().data(), bytes);
    if (!meet(board, processes, 2 * sample + 2)) return false;
    if (sample > 0) times.push_back(to_seconds(Clock::real().now() - start));
  }
  if (process == 0) board.result = static_cast<double>(bytes) / quantile(times, 0.5);
  return true;
}

}  // namespace

double exchange_ns() {
  if (usable_cores() < 2) return 0;
  return in_processes(2, [](int process, Board& board) { return exchange(process, board); });
}

double copy_bandwidth(int processes, std::size_t bytes) {
  constexpr Copy kPlain = [](std::byte* to, const std::byte* from, std::size_t n) {
    std::memcpy(to, from, n);
  };
  constexpr Copy kStreaming = [](std::byte* to, const std::byte* from, std::size_t n) {
    copy_stream(to, from, n);
    streams_done();
  };
  double best = 0;
  for (const Copy copy_bytes : {kPlain, kStreaming}) {
    const auto body = [=](int process, Board& board) {
      return copy(process, processes, bytes, copy_bytes, board);
    };
    best = std::max(best, in_processes(processes, body));
  }
  return best;
}

int usable_cores() { return static_cast<int>(std::max<std::size_t>(cores().size(), 1)); }

}  // namespace motley::perf
