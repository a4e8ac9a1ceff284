// How well the cost model tells what the operations of a layer's programs take: two processes,
// some shapes to fit it, others to be told. Prints errors by kind, and whole programs, simulated
// and measured. Of two ranks each knows all messages, so that either can tell.
//
//   motley-run -n 2 -- moe_program_perf
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

DEFINE_int32(rounds, 4, "times that all shapes are run, one after another");
DEFINE_int32(repeats, 4, "runs of a shape in each round");
DEFINE_double(share, 0,
              "of an operation's times, those that are below the one that counts: 0 is the least, "
              "which is what it takes where nothing else runs; 0.5 the median");
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

// The time that counts of several: see --share.
Duration counted(std::vector<Duration> times) {
  const auto at = static_cast<std::ptrdiff_t>(FLAGS_share * static_cast<double>(times.size() - 1));
  std::ranges::nth_element(times, times.begin() + at);
  return times[static_cast<std::size_t>(at)];
}

// A program and what each of its operations took on this rank.
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
    Measured measured{.program = program_, .op = {}, .whole = counted(whole_)};
    for (const auto& times : times_) measured.op.push_back(counted(times));
    return measured;
  }

 private:
  Program program_;
  std::vector<std::vector<Duration>> times_;
  std::vector<Duration> whole_;
};

// A layer of one shape and its steps. Without chunks operations run one by one; with them, messages
// and products at the same time.
class Steps {
 public:
  Steps(Communicator& comm, const Case& it)
      : it_(it),
        layer_(comm, Placement::grid({.experts = it.experts, .ranks = comm.size()}),
               {.shape = {.width = it.width, .hidden = it.hidden, .activation = Activation::kRelu},
                .exchange = {.degree = it.degree},
                .lanes = it.degree == 1 ? LaneThreads::kOneByOne : LaneThreads::kEach}),
        routing_(route(it, comm.rank())),
        x_(static_cast<std::size_t>(it.tokens) * static_cast<std::size_t>(it.width), 1),
        y_(x_.size()),
        dx_(x_.size()),
        dweight_(static_cast<std::size_t>(it.tokens) * 2) {
    std::ranges::fill(layer_.parameters(), 0.01f);
  }

  // One before that does not count: others have used the caches.
  void run(Communicator& comm, int times) {
    for (int run = 0; run <= times; ++run) {
      comm.barrier().wait();
      layer_.forward({.x = x_, .routing = routing_}, y_);
      const Program program = layer_.program();
      const Timeline timeline = layer_.timeline();
      if (run > 0) forward_.add(comm, program, timeline);
      comm.barrier().wait();
      layer_.backward(y_, {.dx = dx_, .dweight = dweight_});
      if (run > 0) backward_.add(comm, layer_.program(), layer_.timeline());
    }
  }

  const Case& shape() const { return it_; }
  std::vector<Measured> result() const { return {forward_.result(), backward_.result()}; }

 private:
  Case it_;
  ExpertLayer layer_;
  Routing routing_;
  std::vector<float> x_, y_, dx_, dweight_;
  Runs forward_, backward_;
};

std::string to_text(const Case& it) {
  return fmt::format("width {:>3}, hidden {:>4}, {:>2} experts, {:>4} tokens, degree {}", it.width,
                     it.hidden, it.experts, it.tokens, it.degree);
}

// Errors by kind, then the whole programs, forward and backward.
std::string tell(const std::vector<Steps>& told, const CostModel& costs) {
  Accuracy accuracy;
  std::string wholes;
  const auto milliseconds = [](Duration time) { return to_seconds(time) * 1e3; };
  for (const Steps& it : told) {
    wholes += to_text(it.shape());
    for (const Measured& one : it.result()) {
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

std::vector<Steps> steps_of(Communicator& comm, std::span<const Case> cases) {
  std::vector<Steps> steps;
  for (const Case& it : cases) steps.emplace_back(comm, it);
  return steps;
}

void run(Communicator& comm) {
  // All shapes in turns, so that what slows this machine down for a while does so to all alike.
  std::vector<Steps> fitted = steps_of(comm, kFitted), told = steps_of(comm, kTold),
                     overlapping = steps_of(comm, kOverlapping);
  for (int round = 0; round < FLAGS_rounds; ++round) {
    for (std::vector<Steps>* all : {&fitted, &told, &overlapping}) {
      for (Steps& steps : *all) steps.run(comm, FLAGS_repeats);
    }
  }
  CostModel costs(comm.topology());
  for (const Steps& steps : fitted) {
    for (const Measured& one : steps.result()) {
      for (std::size_t op = 0; op < one.op.size(); ++op)
        costs.observe(one.program.ops[op], one.op[op]);
    }
  }
  costs.fit();
  if (comm.rank() != 0) return;
  fmt::print("fitted to {} shapes, others told; rank 0 of {}\n{}\nin several chunks:\n{}",
             std::size(kFitted), comm.size(), tell(told, costs), tell(overlapping, costs));
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
