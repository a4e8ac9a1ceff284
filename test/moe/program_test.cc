// Programs of a layer: what a builder makes, that the simulator keeps to the rules of
// program.h (executor_test.cc: the executor too), and that the cost model finds what times were
// made of. Times are virtual or not looked at.
#include "moe/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "comm/price.h"
#include "moe/builder.h"
#include "moe/cost_model.h"
#include "moe/simulator.h"
#include "test/support/errors.h"

namespace motley::moe {
namespace {

using test::expect_error;
using test::expect_invalid;
using testing::ElementsAre;
using testing::HasSubstr;

Op compute(std::vector<int> after, int priority = 0) {
  return {.kind = OpKind::kEncode,
          .lane = Lane::kCompute,
          .priority = priority,
          .after = std::move(after),
          .bytes = 1000};
}

// Rows for two ranks with two experts each: rank r sends expert e of rank q r + 10 q + 100 e + 1.
RankRows rows_of(int rank, int degree, std::size_t piece_rows = 16) {
  std::vector<std::int64_t> counts;
  for (int from = 0; from < 2; ++from) {
    for (const int expert : {0, 100, 10, 110}) counts.push_back(from + expert + 1);
  }
  return moe::rows_of({.placement = Placement::grid({.experts = 4, .ranks = 2}),
                       .counts = counts,
                       .rank = rank,
                       .tokens = 300,
                       .degree = degree,
                       .piece_rows = piece_rows});
}

std::vector<Program> two_ranks(int degree, bool back = false) {
  const TokenAllToAll builder({});
  const LayerShape shape{.width = 8, .hidden = 32};
  std::vector<Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    programs.push_back(back ? builder.backward(shape, rows_of(rank, degree))
                            : builder.forward(shape, rows_of(rank, degree)));
  }
  return programs;
}

CostModel costs_of_two() { return CostModel(Topology::hosts({0, 0}, {})); }

TEST(Program, NamesTheOperationsThatWaitForEachOther) {
  Program program{.strategy = "test"};
  program.add(compute({}));
  program.add(compute({3}));
  program.add(compute({1}));
  program.add(compute({2}));
  expect_error(ErrorCode::kInvalid, {"3 of 4", "1, 3, 2, 1"}, [&] { check(program); });
  program.ops[1].after = {7};
  expect_error(ErrorCode::kInvalid, {"operation 7"}, [&] { check(program); });
  program.ops[1].after = {1};
  expect_error(ErrorCode::kInvalid, {"1, 1"}, [&] { check(program); });
}

TEST(Program, RefusesACollectiveWhereRanksMayBeInOtherOrders) {
  Program program{.strategy = "test"};
  program.add({.kind = OpKind::kDispatch});
  for (const Lane lane : {Lane::kCompute, Lane::kHost, Lane::kDisk}) {
    program.ops[0].lane = lane;
    expect_error(ErrorCode::kInvalid, {"operation 0", "dispatch", name(lane)},
                 [&] { check(program); });
  }
}

TEST(Program, RefusesRanksThatWouldCallInAnotherOrder) {
  std::vector<Program> programs = two_ranks(2);
  EXPECT_NO_THROW(check_alike(programs));
  programs[1].ops[1].priority = 0;
  expect_error(ErrorCode::kInvalid, {"rank 1"}, [&] { check_alike(programs); });
  programs[1].ops.pop_back();
  expect_error(ErrorCode::kInvalid, {"8"}, [&] { check_alike(programs); });
}

TEST(TokenAllToAll, MovesAndMultipliesEveryRowOnceWhateverTheDegree) {
  for (const bool back : {false, true}) {
    for (const int degree : {1, 2, 3, 8}) {
      const auto programs = two_ranks(degree, back);
      ASSERT_NO_THROW(check_alike(programs));
      for (int rank = 0; rank < 2; ++rank) {
        std::int64_t sent = 0, received = 0, flops = 0, decoded = 0;
        for (const Op& op : programs[static_cast<std::size_t>(rank)].ops) {
          if (op.kind == OpKind::kDispatch) {
            sent += op.sent[static_cast<std::size_t>(1 - rank)];
            received += op.received[static_cast<std::size_t>(1 - rank)];
            EXPECT_EQ(op.sent[static_cast<std::size_t>(rank)], 0);
          }
          for (const GemmShape& gemm : op.gemms) flops += gemm.rows * gemm.columns * gemm.inner;
          if (op.kind == OpKind::kDecode || op.kind == OpKind::kDecodeGradient) decoded += op.rows;
        }
        EXPECT_EQ(sent, (2 * rank + 20 * (1 - rank) + 102) * 8 * 4);
        EXPECT_EQ(received, (2 * (1 - rank) + 20 * rank + 102) * 8 * 4);
        EXPECT_EQ(decoded, 2 * (2 * rank + 10 + 102));
        const std::int64_t computed = 2 * (1 + 20 * rank + 102);
        EXPECT_EQ(flops, computed * 2 * 8 * 32 * (back ? 2 : 1)) << "degree " << degree;
      }
    }
  }
}

TEST(TokenAllToAll, PacksAllChunksFirstThenComputesInTheOrderOfChunks) {
  const Program program = two_ranks(2)[0];
  std::vector<std::string> order;
  for (const int op : serial_order(program)) {
    const Op& it = program.ops[static_cast<std::size_t>(op)];
    if (it.lane == Lane::kCompute)
      order.push_back(std::string(name(it.kind)) + std::to_string(it.chunk));
  }
  EXPECT_THAT(order, ElementsAre("encode0", "encode1", "experts0", "experts1", "decode0"));
  EXPECT_TRUE(is_chain(two_ranks(1)[0]));
  EXPECT_FALSE(is_chain(program));
}

TEST(TokenAllToAll, RefusesRowsOfNoLayer) {
  const TokenAllToAll builder({});
  const LayerShape shape{.width = 8, .hidden = 8};
  const auto refuses = [&](const char* fact, auto change) {
    RankRows rows = rows_of(0, 2);
    change(rows);
    expect_error(ErrorCode::kInvalid, {fact}, [&] { builder.forward(shape, rows); });
  };
  refuses("1 of 2 ranks", [](RankRows& rows) { rows.chunks[1].combine.received.pop_back(); });
  refuses("from itself", [](RankRows& rows) { rows.chunks[1].dispatch.received[0] += 1; });
  refuses("-1 rows", [](RankRows& rows) { rows.chunks[0].dispatch.sent[1] = -1; });
  refuses("-2 rows", [](RankRows& rows) { rows.chunks[0].products[0] = -2; });
  refuses("no chunks", [](RankRows& rows) { rows.chunks.clear(); });
  refuses("rank 2 of 2", [](RankRows& rows) { rows.rank = 2; });
  expect_invalid([&] { builder.forward({.width = 0, .hidden = 8}, rows_of(0, 1)); });
  expect_invalid([&] { TokenAllToAll({.lane = Lane::kDisk}); });
  const Placement placement = Placement::grid({.experts = 4, .ranks = 2});
  std::vector<std::int64_t> counts(7);
  expect_error(ErrorCode::kInvalid, {"7 counts of 2 ranks and 4"},
               [&] { (void)moe::rows_of({.placement = placement, .counts = counts}); });
  counts = {0, 0, 0, -5, 0, 0, 0, 0};
  expect_error(ErrorCode::kInvalid, {"-5 rows"},
               [&] { (void)moe::rows_of({.placement = placement, .counts = counts}); });
}

// --- Simulator -----------------------------------------------------------------------------------

// By hand: of a chain the sum, of two lanes side by side the longer.
TEST(Simulator, AddsWhatFollowsAndOverlapsWhatDoesNot) {
  const CostModel costs = costs_of_two();
  Program program{.strategy = "test"};
  const int a = program.add(compute({}));
  const int b = program.add({.kind = OpKind::kFetch, .lane = Lane::kDisk, .bytes = 5000});
  program.add(compute({a, b}));
  const Duration step = costs.time(program.ops[0]), fetch = costs.time(program.ops[1]);
  ASSERT_GT(fetch, step);
  const Timeline times = simulate(program, costs);
  EXPECT_TRUE(times.simulated);
  EXPECT_EQ(times.total(), fetch + step);
  EXPECT_EQ(least_time(program, costs), times.total());
  program.ops[1].lane = Lane::kCompute;  // one after another
  EXPECT_EQ(simulate(program, costs).total(), step + fetch + step);
}

TEST(Simulator, TakesTheHigherPriorityFirstButTalksInAFixedOrder) {
  const CostModel costs = costs_of_two();
  Program program{.strategy = "test"};
  const int slow = program.add(compute({}, 0));
  const int urgent = program.add(compute({}, 1));
  program.add({.kind = OpKind::kMoveExpert,
               .lane = Lane::kIntraHost,
               .priority = 1,
               .after = {slow},
               .bytes = 10});
  program.add(
      {.kind = OpKind::kMoveExpert, .lane = Lane::kIntraHost, .after = {urgent}, .bytes = 10});
  const Timeline times = simulate(program, costs);
  EXPECT_EQ(times.ops[1].start, Duration{});
  EXPECT_EQ(times.ops[0].start, times.ops[1].end);
  // What is ready first waits: other ranks' lanes have the same order.
  EXPECT_GE(times.ops[3].start, times.ops[2].end);
}

// Two equal operations end at one time: what the later of them makes ready may be the more urgent.
TEST(Simulator, EndsAllAtATimeBeforeItStartsAnything) {
  Program program{.strategy = "test"};
  const int a = program.add(compute({}));
  const int b = program.add(compute({}));
  program.ops[1].lane = Lane::kHost;
  for (const int before : {a, b}) program.add(compute({before}, before));
  const Timeline times = simulate(program, costs_of_two());
  ASSERT_EQ(times.ops[0].end, times.ops[1].end);
  EXPECT_EQ(times.ops[3].start, times.ops[1].end);
  EXPECT_EQ(times.ops[2].start, times.ops[3].end);
}

TEST(Simulator, EndsACollectiveOnAllRanksTogether) {
  const CostModel costs = costs_of_two();
  for (const int degree : {1, 2, 4}) {
    auto programs = two_ranks(degree);
    programs[1].ops[0].bytes = 50'000'000;  // comes late
    const auto times = simulate(programs, costs);
    for (std::size_t op = 0; op < programs[0].ops.size(); ++op) {
      if (!is_collective(programs[0].ops[op].kind)) continue;
      EXPECT_EQ(times[0].ops[op].end, times[1].ops[op].end);
      EXPECT_GT(times[1].ops[op].end, times[1].ops[0].end);
    }
    const auto own = own_times(programs, times);
    for (std::size_t op = 0; op < programs[0].ops.size(); ++op) {
      if (!is_collective(programs[0].ops[op].kind)) continue;
      const std::vector<const Op*> both = {&programs[0].ops[op], &programs[1].ops[op]};
      EXPECT_EQ(own[0][op], costs.time(both));
    }
    for (std::size_t rank = 0; rank < 2; ++rank)
      EXPECT_GE(makespan(times), least_time(programs[rank], costs));
    EXPECT_EQ(times[0].ops, simulate(programs, costs)[0].ops) << "the same again";
  }
  expect_invalid([&] { simulate(std::vector<Program>(3), costs); });
}

// With as long to send as to compute, two chunks must hide some of one behind the other.
TEST(Simulator, HidesMessagesBehindComputing) {
  const CostModel costs(Topology::hosts({0, 1}, {.between = {.bytes_per_second = 4e7}}));
  const LayerShape shape{.width = 512, .hidden = 512};
  const auto total = [&](int degree) {
    const TokenAllToAll builder({.lane = lane_of(costs.topology())});
    const std::vector<std::int64_t> even(2 * 16, 256);
    const Placement placement = Placement::grid({.experts = 16, .ranks = 2});
    std::vector<Program> programs;
    for (int rank = 0; rank < 2; ++rank) {
      programs.push_back(builder.forward(shape, moe::rows_of({.placement = placement,
                                                              .counts = even,
                                                              .rank = rank,
                                                              .tokens = 2048,
                                                              .degree = degree})));
    }
    return makespan(simulate(programs, costs));
  };
  EXPECT_LT(to_seconds(total(4)), 0.85 * to_seconds(total(1)));
}

// --- Cost model ----------------------------------------------------------------------------------

TEST(CostModel, PricesAllToAllsAsCommDoes) {
  const CostModel costs = costs_of_two();
  Op op{.kind = OpKind::kDispatch, .lane = Lane::kIntraHost};
  op.sent = {0, 1 << 19};
  op.received = {0, 1 << 10};
  const Duration known = price({.bytes = 1 << 20}, costs.topology());
  EXPECT_GT(costs.time(op), known);
  EXPECT_LT(costs.time(op), 2 * known + seconds(1e-3));
  Op other = op;
  other.sent = {0, 0};
  other.received = {0, 1 << 22};  // the longest way of any rank counts
  const std::vector<const Op*> both = {&op, &other};
  EXPECT_EQ(costs.time(both), costs.time(other));
  expect_invalid([&] { price({.algorithm = "none"}, costs.topology()); });
}

// Times are made by a law that the model does not know, with noise; shapes to be told are others.
TEST(CostModel, FindsALawFromNoisyTimesAndTellsOtherShapes) {
  CostModel costs = costs_of_two();
  std::mt19937_64 random(5);
  const auto law = [](const GemmShape& gemm) {
    const double m = static_cast<double>(gemm.rows);
    const double flops = 2 * m * static_cast<double>(gemm.columns * gemm.inner);
    return seconds(3e-6 + flops / (3e10 * m / (m + 40)));
  };
  const auto op_of = [](const GemmShape& gemm) {
    return Op{.kind = OpKind::kExperts,
              .lane = Lane::kCompute,
              .rows = gemm.rows,
              .bytes = 4 * (gemm.rows * (gemm.columns + gemm.inner) + gemm.columns * gemm.inner),
              .gemms = {gemm}};
  };
  std::uniform_real_distribution<double> power(0, 11), noise(0.9, 1.1);
  const auto shape = [&] {
    return GemmShape{static_cast<std::int64_t>(std::exp2(power(random))), 64 << random() % 4,
                     64 << random() % 3};
  };
  for (int i = 0; i < 400; ++i) {
    const GemmShape gemm = shape();
    costs.observe(op_of(gemm), seconds(to_seconds(law(gemm)) * noise(random)));
  }
  costs.fit();
  Accuracy accuracy;
  for (int i = 0; i < 200; ++i) {
    const GemmShape gemm = shape();
    accuracy.add(OpKind::kExperts, costs.time(op_of(gemm)), law(gemm));
  }
  EXPECT_LT(accuracy.median(), 0.08) << accuracy.to_text();
  EXPECT_EQ(costs.observed(OpKind::kExperts), 400);

  const CostModel again = CostModel::parse(costs.to_text(), "costs", costs.topology());
  const Op op = op_of({100, 128, 256});
  EXPECT_EQ(again.time(op), costs.time(op));
  EXPECT_EQ(again.observed(OpKind::kExperts), 400);
  expect_invalid([&] { CostModel::parse("{}", "costs", costs.topology()); });
}

// --- Timeline ----------------------------------------------------------------------------------

TEST(Timeline, SaysInATraceWhatIsSimulated) {
  const auto programs = two_ranks(2);
  const auto times = simulate(programs, costs_of_two());
  const std::string trace = to_chrome_trace(programs, times);
  EXPECT_THAT(trace, HasSubstr("rank 1 (simulated)"));
  EXPECT_THAT(trace, HasSubstr("\"combine\""));
  EXPECT_THAT(to_text(programs[0], times[0]), HasSubstr("simulated: "));
  expect_invalid([&] { to_chrome_trace(programs, std::span(times).first(1)); });
}

}  // namespace
}  // namespace motley::moe
