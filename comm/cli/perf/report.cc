#include "comm/cli/perf/report.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <thread>

#include "comm/cli/perf/plan.h"
#include "comm/error.h"
#include "comm/json.h"
#include "comm/version.h"

namespace motley::perf {
namespace {

constexpr const char* kColumns =
    "collective        size       count type     op           place buffers   algorithm           "
    " time us  algbw  busbw wrong    p50 us    p99 us\n";

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string kernel() {
  utsname system{};
  return uname(&system) == 0 ? fmt::format("{} {}", system.sysname, system.release) : "unknown";
}

unsigned cores() { return std::thread::hardware_concurrency(); }

double micros(double seconds) { return seconds * 1e6; }

// GB/s of bytes / time; 0 where there are no bytes.
double bandwidth(const Result& result) {
  return static_cast<double>(result.cell.bytes()) / result.timing.time * 1e-9;
}

const char* op_text(const Cell& cell) { return reduces(cell.kind) ? name(cell.op) : "-"; }

std::string row(const Result& result, int ranks) {
  const Cell& cell = result.cell;
  return fmt::format(
      "{:<15} {:>6} {:>11} {:<8} {:<12} {:<5} {:<9} {:<19} {:>8.2f} {:>6.2f} {:>6.2f} {:>5} "
      "{:>9.2f} {:>9.2f}\n",
      name(cell.kind), size_text(cell.bytes()), cell.count, name(cell.dtype), op_text(cell),
      name(cell.place), name(cell.buffers), result.algorithm, micros(result.timing.time),
      bandwidth(result), bandwidth(result) * bus_factor(cell.kind, ranks), result.wrong,
      micros(result.timing.p50), micros(result.timing.p99));
}

nlohmann::json as_json(const Result& result, int ranks) {
  const Cell& cell = result.cell;
  nlohmann::json json = {{"line", "cell"},
                         {"collective", name(cell.kind)},
                         {"bytes", cell.bytes()},
                         {"count", cell.count},
                         {"type", name(cell.dtype)},
                         {"op", op_text(cell)},
                         {"place", name(cell.place)},
                         {"buffers", name(cell.buffers)},
                         {"algorithm", result.algorithm},
                         {"asked", cell.algorithm},
                         {"time_us", micros(result.timing.time)},
                         {"least_us", micros(result.timing.least)},
                         {"algbw_gbs", bandwidth(result)},
                         {"busbw_gbs", bandwidth(result) * bus_factor(cell.kind, ranks)},
                         {"wrong", result.wrong},
                         {"p50_us", micros(result.timing.p50)},
                         {"p99_us", micros(result.timing.p99)},
                         {"calls", result.timing.calls},
                         {"samples", result.timing.samples}};
  if (result.price) json["price_us"] = micros(*result.price);
  return json;
}

nlohmann::json as_json(const Heading& heading) {
  return {{"line", "heading"},
          {"program", heading.program},
          {"library", heading.library},
          {"commit", heading.commit},
          {"ranks", heading.ranks},
          {"transport", heading.transport},
          {"flags", heading.flags},
          {"machine", {{"processor", processor()}, {"cores", cores()}, {"kernel", kernel()}}}};
}

}  // namespace

Report::Report(const Heading& heading, const std::string& json, std::FILE* screen)
    : ranks_(heading.ranks), path_(json), screen_(screen) {
  if (!path_.empty()) {
    json_.open(path_);
    json_ << json_text(as_json(heading)) << std::endl;
    if (!json_) throw_errno(fmt::format("{}: write {}", heading.program, path_));
  }
  if (screen_ == nullptr) return;
  fmt::print(screen_, "{}, {} ranks, transport {}, {}\n\n{}", heading.library, heading.ranks,
             heading.transport, machine_text(), kColumns);
  std::fflush(screen_);
}

void Report::add(const Result& result) {
  wrong_cells_ += result.wrong != 0;
  if (json_.is_open()) {
    json_ << json_text(as_json(result, ranks_)) << std::endl;
    if (!json_) throw_errno(fmt::format("write {}", path_));
  }
  if (screen_ == nullptr) return;
  fmt::print(screen_, "{}", row(result, ranks_));
  std::fflush(screen_);
}

void Report::skip(const Cell& cell, const std::string& why) {
  if (screen_ == nullptr) return;
  fmt::print(screen_, "{:<15} {:>6} {}\n", name(cell.kind), size_text(cell.bytes()), why);
}

std::string column_text() {
  return R"(Columns
  size, count  bytes and elements of the longer of input and output, all its blocks together;
               rounded up to an element for each rank
  place        in: the result takes the input's place; out: it does not
  buffers      private: memory of the process alone; allocated: from Communicator::allocate;
               device: of the rank's GPU
  time us      of one call: the median over samples of calls back to back, of the slowest rank
  algbw        GB/s: size / time
  busbw        GB/s: algbw times what a link carries per byte of size, as in nccl-tests:
               all_reduce 2(p-1)/p; blocks from or to every rank (p-1)/p; others 1
  wrong        elements of the first result that are not what they must be, on the worst rank
  p50, p99 us  of single calls, each timed by itself (some 20 ns of it for reading the clock)
)";
}

std::string commit_text() {
  const std::string text = version_text();  // "0.1.0, commit 12a6487c0ffe\n…"
  const std::string line = text.substr(0, text.find('\n'));
  return line.substr(line.rfind(' ') + 1);
}

std::string machine_text() {
  return fmt::format("{}, {} cores, {}", processor(), cores(), kernel());
}

}  // namespace motley::perf
