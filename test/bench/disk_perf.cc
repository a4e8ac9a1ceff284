// Training from disk beside training in memory: FM with 8 factors on a file whose parts are ten
// times as large as the memory that training from disk may have, by a cgroup of its own. In turns,
// each in a process of its own; rows per second of all epochs but the first.
//   disk_perf [-limit_mb N] [-rounds N] [-epochs N] [-folder F]
// Makes the cgroup, and so wants to be root; says so where it cannot, and measures without a limit.
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/error.h"
#include "test/bench/wide/bench_main.h"
#include "test/wide/skewed_rows.h"
#include "wide/disk_run.h"

DEFINE_uint64(limit_mb, 48, "of memory, for training from disk");
DEFINE_uint64(rounds, 2, "of both ways");
DEFINE_int32(epochs, 3, "of each run");
DEFINE_uint64(part_rows, 20'000, "rows read at a time");
DEFINE_int32(k, 8, "factors");
DEFINE_string(folder, ".", "for the file and its parts");

namespace motley::wide {
namespace {

constexpr unsigned kFields = 39;
constexpr std::size_t kRowBytes = kFields * 4 + 4;  // in a part

// Writes libsvm rows; returns how many.
std::size_t write_rows(const std::string& path) {
  const std::size_t rows = 10 * (FLAGS_limit_mb << 20) / kRowBytes;
  std::ofstream out(path);
  std::size_t written = 0;
  for (std::uint64_t seed = 1; written < rows; ++seed) {
    const Dataset data = test::skewed_rows(
        {.rows = 50'000, .fields = kFields, .features = 4, .growth = 1.2, .skew = 6, .seed = seed});
    std::string text;
    for (std::size_t r = 0; r < data.rows(); ++r) {
      text += data.labels[r] > 0 ? '1' : '0';
      for (std::uint64_t e = data.row_begin[r]; e < data.row_begin[r + 1]; ++e) {
        char number[16];
        const auto end = std::to_chars(number, number + sizeof number, data.ids[e]).ptr;
        text += ' ';
        text.append(number, end);
        text += ":1";
      }
      text += '\n';
    }
    out << text;
    written += data.rows();
  }
  out.close();
  if (!out) throw_errno("write " + path);
  return written;
}

// A cgroup with the limit; an empty path where there can be none.
class Limit {
 public:
  Limit() {
    const std::filesystem::path first = "/sys/fs/cgroup/memory", second = "/sys/fs/cgroup";
    const bool old = std::filesystem::exists(first / "memory.limit_in_bytes");
    const auto folder = (old ? first : second) / ("motley_disk_perf_" + std::to_string(getpid()));
    std::error_code error;
    if (!std::filesystem::create_directory(folder, error)) return;
    folder_ = folder;
    if (put(old ? "memory.limit_in_bytes" : "memory.max", FLAGS_limit_mb << 20)) return;
    rmdir(folder_.c_str());
    folder_.clear();
  }
  ~Limit() {
    if (!folder_.empty()) rmdir(folder_.c_str());
  }
  bool holds() const { return !folder_.empty(); }
  // This process is held to it.
  bool enter() const { return put("cgroup.procs", static_cast<std::uint64_t>(getpid())); }

 private:
  bool put(const char* name, std::uint64_t value) const {
    std::ofstream file(folder_ / name);
    file << value << std::flush;
    return file.good();
  }
  std::filesystem::path folder_;
};

TrainOptions options() {
  return {.model = {.kind = ModelKind::kFm, .factors = FLAGS_k},
          .epochs = FLAGS_epochs,
          .prior_factors = 0,
          .average = 0};
}

// Rows per second of all epochs but the first.
template <class Run>
double rate_of(Run& run, std::size_t rows) {
  TimePoint begin = Clock::real().now();
  while (run.next_step()) {
    if (run.rows_trained() <= rows) begin = Clock::real().now();
  }
  return static_cast<double>(run.rows_trained() - rows) / to_seconds(Clock::real().now() - begin);
}

double in_memory(const std::string& file, std::size_t rows) {
  TrainOptions by_epoch = options();
  by_epoch.sync_rows = rows;
  TrainingRun run(read_file(file, {.fields = false}), std::nullopt, by_epoch);
  return rate_of(run, rows);
}

double from_disk(const std::string& file, std::size_t rows) {
  DiskRows on_disk({file}, file + ".parts",
                   {.read = {.fields = false}, .rows_of_part = FLAGS_part_rows});
  DiskRun run(std::move(on_disk), std::nullopt, options());
  return rate_of(run, rows);
}

// In a process of its own; 0 where it fails.
double in_child(const std::function<double()>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw_errno("pipe");
  const pid_t child = fork();
  if (child < 0) throw_errno("fork");
  if (child == 0) {
    double result = 0;
    try {
      result = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(write(ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
  }
  close(ends[1]);
  double result = 0;
  if (read(ends[0], &result, sizeof result) != sizeof result) result = 0;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) fmt::print("killed by signal {}\n", WTERMSIG(status));
  return result;
}

void run() {
  const std::string file = FLAGS_folder + "/disk_perf.svm";
  // Memory that writing needs would count against the limit of who is forked afterwards.
  const auto rows =
      static_cast<std::size_t>(in_child([&] { return static_cast<double>(write_rows(file)); }));
  if (rows == 0) throw Error(ErrorCode::kIo, "disk_perf: its rows could not be written");
  const Limit limit;
  fmt::print("{} rows, {} MB of text, {} MB of parts; from disk {}\n", rows,
             std::filesystem::file_size(file) >> 20, rows * kRowBytes >> 20,
             limit.holds() ? fmt::format("within {} MB", FLAGS_limit_mb)
                           : std::string("WITHOUT a limit: no cgroup could be made (not root?)"));
  double memory = 0, disk = 0;
  for (std::uint64_t round = 0; round < FLAGS_rounds; ++round) {
    const double a = in_child([&] { return in_memory(file, rows); });
    const double b = in_child([&] {
      if (limit.holds() && !limit.enter()) throw_errno("enter the cgroup");
      return from_disk(file, rows);
    });
    fmt::print("in memory {:8.0f} krows/s, from disk {:8.0f}: {:.2f}\n", a / 1e3, b / 1e3, b / a);
    std::fflush(stdout);
    memory = std::max(memory, a);
    disk = std::max(disk, b);
  }
  fmt::print("best of {}: {:.2f}\n", FLAGS_rounds, disk / memory);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace motley::wide

int main(int argc, char** argv) { return motley::wide::bench_main(argc, argv, motley::wide::run); }
