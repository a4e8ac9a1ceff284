// How well the cost model tells what the operations of a layer's programs take: two processes,
// some shapes to fit it, others to be told. Prints errors by kind, and whole programs, simulated
// and measured. Of two ranks each knows all messages, so that either can tell.
//
//   motley-run -n 2 -- moe_program_perf --repeats 7
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "moe/cost_model.h"
#include "moe/expert_layer.h"
#include "moe/simulator.h"
#include "moe/timeline.h"

DEFINE_int32(repeats, 7, "runs of each shape; the median of an operation's times counts");
DEFINE_string(costs, "", "where to write the fitted costs");

using namespace motley;
using namespace motley::moe;

namespace {

struct Case {
  int width, hidden, experts, tokens, degree;
};
constexpr Case kFitted[] = {
    {64, 128, 8, 256, 1},   {64, 128, 8, 2048, 1},  {128, 256, 8, 64, 1},  {128, 512, 8, 1024, 1},
    {256, 512, 4, 512, 1},  {256, 1024, 8, 256, 1}, {512, 1024, 8, 64, 1}, {512, 512, 4, 1024, 1},
    {96, 384, 16, 4096, 1}, {512, 2048, 8, 512, 1}, {64, 256, 8, 512, 1},  {192, 384, 8, 768, 1},
};
constexpr Case kTold[] = {
    {64, 192, 8, 1024, 1}, {96, 256, 8, 512, 1},   {192, 512, 8, 256, 1},  {256, 768, 8, 1024, 1},
    {384, 768, 4, 512, 1}, {512, 1536, 8, 256, 1}, {320, 640, 16, 128, 1}, {128, 384, 8, 3000, 1},
};
// Here messages and products run at the same time, on cores that they must share.
constexpr Case kOverlapping[] = {
    {96, 256, 8, 512, 2},
    {256, 768, 8, 1024, 2},
    {384, 768, 4, 512, 2},
    {128, 384, 8, 3000, 4},
};

// Choices at random, some experts liked better than others.
Routing route(const Case& it, int rank) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank * 7919 + it.tokens + it.width));
  Routing routing;
  routing.tokens = static_cast<std::size_t>(it.tokens);
  routing.top_k = 2;
  std::vector<double> liking;
  for (int e = 0; e < it.experts; ++e) liking.push_back(1.0 / (2 + e));
  std::discrete_distribution<int> draw(liking.begin(), liking.end());
  for (int token = 0; token < it.tokens; ++token) {
    const int first = draw(random);
    int second = draw(random);
    while (second == first) second = draw(random);
    routing.expert.insert(routing.expert.end(), {first, second});
    routing.weight.insert(routing.weight.end(), {0.75f, 0.25f});
  }
  count_choices(routing, it.experts);
  return routing;
}

// All ranks' times, on every rank.
std::vector<Timeline> shared(Communicator& comm, const Timeline& mine) {
  std::vector<std::int64_t> own = {mine.begin.time_since_epoch().count()};
  for (const OpTime& op : mine.ops) own.insert(own.end(), {op.start.count(), op.end.count()});
  std::vector<std::int64_t> all(own.size() * static_cast<std::size_t>(comm.size()));
  comm.all_gather(own, all).wait();
  std::vector<Timeline> timelines;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto* from = all.data() + static_cast<std::size_t>(rank) * own.size();
    Timeline timeline{
        .simulated = false, .rank = rank, .ops = {}, .begin = TimePoint(Duration(from[0]))};
    for (std::size_t op = 0; op < mine.ops.size(); ++op)
      timeline.ops.push_back({Duration(from[1 + 2 * op]), Duration(from[2 + 2 * op])});
    timelines.push_back(std::move(timeline));
  }
  return timelines;
}

Duration median(std::vector<Duration> times) {
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  return times[times.size() / 2];
}

// A program and what each of its operations took on this rank, the median of all runs.
struct Measured {
  Program program;
  std::vector<Duration> op;
  Duration whole{};
};

class Runs {
 public:
  void add(Communicator& comm, const Program& program, const Timeline& timeline) {
    program_ = program;
    const std::vector<Timeline> all = shared(comm, timeline);
    const std::vector<Program> alike(all.size(), program);
    const auto own = own_times(alike, all);
    times_.resize(program.ops.size());
    for (std::size_t op = 0; op < times_.size(); ++op)
      times_[op].push_back(own[static_cast<std::size_t>(comm.rank())][op]);
    TimePoint start = all[0].begin, end{};
    for (const Timeline& one : all) {
      start = std::max(start, one.begin);  // who comes first waits in the first all-to-all
      end = std::max(end, one.begin + one.total());
    }
    whole_.push_back(end - start);
  }
  Measured result() const {
    Measured measured{.program = program_, .op = {}, .whole = median(whole_)};
    for (const auto& times : times_) measured.op.push_back(median(times));
    return measured;
  }

 private:
  Program program_;
  std::vector<std::vector<Duration>> times_;
  std::vector<Duration> whole_;
};

// Forward and backward of one shape. Without chunks operations run one by one; with them, messages
// and products at the same time.
std::vector<Measured> measure(Communicator& comm, const Case& it) {
  const auto d = static_cast<std::size_t>(it.width), tokens = static_cast<std::size_t>(it.tokens);
  ExpertLayer layer(
      comm, Placement::grid({.experts = it.experts, .ranks = comm.size()}),
      {.shape = {.width = it.width, .hidden = it.hidden, .activation = Activation::kRelu},
       .exchange = {.degree = it.degree},
       .lanes = it.degree == 1 ? LaneThreads::kOneByOne : LaneThreads::kEach});
  std::ranges::fill(layer.parameters(), 0.01f);
  const Routing routing = route(it, comm.rank());
  std::vector<float> x(tokens * d, 1), y(x.size()), dx(x.size()), dweight(tokens * 2);
  Runs forward, backward;
  for (int run = 0; run < FLAGS_repeats + 2; ++run) {
    comm.barrier().wait();
    layer.forward({.x = x, .routing = routing}, y);
    const Program program = layer.program();
    const Timeline timeline = layer.timeline();
    if (run >= 2) forward.add(comm, program, timeline);
    comm.barrier().wait();
    layer.backward(y, {.dx = dx, .dweight = dweight});
    if (run >= 2) backward.add(comm, layer.program(), layer.timeline());
  }
  return {forward.result(), backward.result()};
}

std::string to_text(const Case& it) {
  return fmt::format("width {:>3}, hidden {:>4}, {:>2} experts, {:>4} tokens, degree {}", it.width,
                     it.hidden, it.experts, it.tokens, it.degree);
}

// Errors by kind, then the whole programs, forward and backward.
std::string tell(Communicator& comm, std::span<const Case> cases, const CostModel& costs) {
  Accuracy accuracy;
  std::string wholes;
  const auto milliseconds = [](Duration time) { return to_seconds(time) * 1e3; };
  for (const Case& it : cases) {
    wholes += to_text(it);
    for (const Measured& one : measure(comm, it)) {
      for (std::size_t op = 0; op < one.op.size(); ++op)
        accuracy.add(one.program.ops[op].kind, costs.time(one.program.ops[op]), one.op[op]);
      wholes +=
          fmt::format("   simulated {:8.3f} ms, measured {:8.3f} ms",
                      milliseconds(simulate(one.program, costs).total()), milliseconds(one.whole));
    }
    wholes += '\n';
  }
  return accuracy.to_text() + wholes;
}

void run(Communicator& comm) {
  CostModel costs(comm.topology());
  for (const Case& it : kFitted) {
    for (const Measured& one : measure(comm, it)) {
      for (std::size_t op = 0; op < one.op.size(); ++op)
        costs.observe(one.program.ops[op], one.op[op]);
    }
  }
  costs.fit();
  const std::string told = tell(comm, kTold, costs);
  const std::string overlapping = tell(comm, kOverlapping, costs);
  if (comm.rank() != 0) return;
  fmt::print("fitted to {} shapes, others told; rank 0 of {}\n{}\nin several chunks:\n{}",
             std::size(kFitted), comm.size(), told, overlapping);
  if (!FLAGS_costs.empty()) std::ofstream(FLAGS_costs) << costs.to_text();
}

}  // namespace

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    Communicator comm = Communicator::join(Options::from_environment());
    run(comm);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
