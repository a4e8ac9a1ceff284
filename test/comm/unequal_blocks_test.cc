// all_gather_v and all_to_all_v: blocks of any sizes, none among them, on every transport, in host
// memory and in that of a device. Some of these are what users of other libraries reported; their
// numbers are those of the list of scenarios.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "comm/algorithm/families.h"
#include "comm/communicator.h"
#include "comm/error.h"
#include "test/support/buffer.h"
#include "test/support/device_emulated.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::expect_error;
using test::run_ranks;
using test::run_ranks_on;

using Counts = std::vector<std::size_t>;
using Data = std::vector<std::int32_t>;
using Buffer = test::Buffer<std::int32_t>;
// How many elements rank `from` has for rank `to`.
using Matrix = std::vector<Counts>;

std::int32_t element(int from, int to, std::size_t i) {
  return (from * 64 + to) * 100'000 + static_cast<std::int32_t>(i);
}

void append(Data& data, int from, int to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) data.push_back(element(from, to, i));
}

using Parameters = std::tuple<std::string, Memory>;

class UnequalBlocks : public testing::TestWithParam<Parameters> {
 protected:
  // Short segments: long blocks are cut where short ones have no part.
  void run(int ranks, const test::RankBody& body) {
    test::emulate({.host_access = test::host_access_over(std::get<0>(GetParam()))});
    Options options;
    options.segment_bytes = 4096;
    run_ranks_on(std::get<0>(GetParam()), ranks, body, options);
  }
  Buffer place(Data data) { return {std::get<1>(GetParam()), std::move(data)}; }

  void expect_exchanged(Communicator& comm, const Matrix& matrix);
  void expect_gathered(Communicator& comm, const Counts& counts);
};

void UnequalBlocks::expect_exchanged(Communicator& comm, const Matrix& matrix) {
  const auto me = static_cast<std::size_t>(comm.rank());
  Data own, due;
  Counts out_counts;
  for (std::size_t r = 0; r < matrix.size(); ++r) {
    append(own, comm.rank(), static_cast<int>(r), matrix[me][r]);
    append(due, static_cast<int>(r), comm.rank(), matrix[r][me]);
    out_counts.push_back(matrix[r][me]);
  }
  bool symmetric = true;
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) symmetric &= matrix[i][j] == matrix[j][i];
  }
  std::vector<std::string> names = {"auto"};
  for (const Algorithm& family : algorithms_of(CallKind::kAllToAllV)) {
    if (family.rest == nullptr || std::get<1>(GetParam()) == Memory::kHost)
      names.emplace_back(family.name);
  }
  for (const std::string& family : names) {
    const CallOptions options{.algorithm = family};
    const std::string where = family + ", rank " + std::to_string(me);
    Buffer in = place(own), out = place(Data(due.size(), -1));
    comm.all_to_all_v({in, matrix[me]}, {out, out_counts}, options).wait();
    EXPECT_TRUE(out.read() == due) << where;
    EXPECT_TRUE(in.read() == own) << "input, " << where;
    if (!symmetric) continue;
    comm.all_to_all_v({in, matrix[me]}, {in, out_counts}, options).wait();
    EXPECT_TRUE(in.read() == due) << "in place, " << where;
  }
}

void UnequalBlocks::expect_gathered(Communicator& comm, const Counts& counts) {
  const auto me = static_cast<std::size_t>(comm.rank());
  Data own, due;
  append(own, comm.rank(), 0, counts[me]);
  for (std::size_t r = 0; r < counts.size(); ++r) append(due, static_cast<int>(r), 0, counts[r]);
  std::vector<std::string> names = {"auto"};
  for (const Algorithm& family : algorithms_of(CallKind::kAllGatherV))
    names.emplace_back(family.name);
  const std::size_t first =
      std::accumulate(counts.begin(), counts.begin() + comm.rank(), std::size_t{0});
  for (const std::string& family : names) {
    const CallOptions options{.algorithm = family};
    Buffer in = place(own), out = place(Data(due.size(), -1));
    comm.all_gather_v(in, {out, counts}, options).wait();
    EXPECT_TRUE(out.read() == due) << family << ", rank " << me << " of " << counts.size();
    Data holes(due.size(), -1);
    std::copy(own.begin(), own.end(), holes.begin() + static_cast<std::ptrdiff_t>(first));
    Buffer data = place(holes);
    const View mine = data.view().slice(first, own.size());
    comm.all_gather_v(mine, {data, counts}, options).wait();
    EXPECT_TRUE(data.read() == due) << family << " in place, rank " << me;
  }
}

TEST_P(UnequalBlocks, ComeToTheirOwners) {
  for (const int ranks : {1, 2, 3, 7, 8}) {
    run(ranks, [&, ranks = ranks](Communicator& comm) {
      const std::size_t sizes[] = {0, 1, 4'097, 7, 0, 2'500};
      Matrix matrix(static_cast<std::size_t>(ranks), Counts(static_cast<std::size_t>(ranks)));
      for (std::size_t i = 0; i < matrix.size(); ++i) {
        for (std::size_t j = 0; j < matrix.size(); ++j) matrix[i][j] = sizes[(2 * i + 3 * j) % 6];
      }
      expect_exchanged(comm, matrix);
      expect_gathered(comm, matrix.back());
    });
  }
}

// Scenario 1: one rank sends nothing, and data goes one way only.
TEST_P(UnequalBlocks, Scenario1OneDirectionOnly) {
  run(2, [&](Communicator& comm) {
    expect_exchanged(comm, {{0, 5'000}, {0, 0}});
    expect_exchanged(comm, {{0, 0}, {3, 0}});
  });
}

// Scenario 2: no elements at all, in either.
TEST_P(UnequalBlocks, Scenario2NothingAnywhere) {
  run(3, [&](Communicator& comm) {
    expect_exchanged(comm, Matrix(3, Counts(3, 0)));
    expect_gathered(comm, Counts(3, 0));
    expect_gathered(comm, {0, 9, 0});
  });
}

// Scenario 3: a column of zeros (one rank receives nothing), and half of the ranks idle.
TEST_P(UnequalBlocks, Scenario3ZeroColumnAndIdleRanks) {
  run(4, [&](Communicator& comm) {
    expect_exchanged(comm, {{1, 0, 2, 3}, {4, 0, 5, 6}, {7, 0, 8, 9}, {1'500, 0, 1, 2}});
    expect_exchanged(comm, {{2, 3'000, 0, 0}, {4, 5, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}});
    expect_exchanged(comm, {{2, 3'000, 0, 1}, {3'000, 5, 0, 0}, {0, 0, 0, 0}, {1, 0, 0, 0}});
  });
}

// Who passes blocks on does so through the host; that is said before anything is sent.
TEST_P(UnequalBlocks, OfDevicesAreNotPassedOn) {
  if (std::get<1>(GetParam()) == Memory::kHost) GTEST_SKIP() << "for device memory";
  run(2, [&](Communicator& comm) {
    Buffer in = place({1, 2}), out = place({0, 0});
    const Counts counts = {1, 1};
    expect_error(ErrorCode::kInvalid, {"leader", "device memory", "direct"}, [&] {
      comm.all_to_all_v({in, counts}, {out, counts}, {.algorithm = "leader"}).wait();
    });
    comm.all_to_all_v({in, counts}, {out, counts}).wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, UnequalBlocks,
                         testing::Combine(testing::ValuesIn(test::transports()),
                                          testing::Values(Memory::kHost, Memory::kDevice)),
                         [](const testing::TestParamInfo<Parameters>& tested) {
                           return std::get<0>(tested.param) + "_" +
                                  test::text(std::get<1>(tested.param));
                         });

// Beyond one segment too: what the two ends of a message disagree on is its whole length. The
// sender, whose own block came as expected, is done.
TEST(UnequalBlocksErrors, DisagreementOnABlockNamesBothLengths) {
  for (const std::size_t n : {std::size_t{3}, std::size_t{100'000}}) {
    run_ranks(2, [n](Communicator& comm) {
      const Counts one = {1, 1}, more = {1, n};
      Data in(comm.rank() == 0 ? n + 1 : 2), out(2);
      const auto call = [&] {
        comm.all_to_all_v({in, comm.rank() == 0 ? more : one}, {out, one}).wait();
      };
      if (comm.rank() == 0) return call();
      expect_error(ErrorCode::kMismatch,
                   {"all_to_all_v #0", "rank 0", "count 1 ", "count " + std::to_string(n)}, call);
    });
  }
}

TEST(UnequalBlocksErrors, CountsThatDoNotFitAreRefusedAtOnce) {
  run_ranks(1, [](Communicator& comm) {
    Data a(5), b(6);
    const Counts five = {5}, two = {2, 3};
    expect_error(ErrorCode::kInvalid, {"`out` sum to 5", "6 elements"}, [&] {
      (void)comm.all_to_all_v({a, five}, {b, five});
    });
    expect_error(ErrorCode::kInvalid, {"2 counts", "1 members"}, [&] {
      (void)comm.all_gather_v(a, {a, two});
    });
    expect_error(ErrorCode::kInvalid, {"`in` has 6", "is 5"}, [&] {
      (void)comm.all_gather_v(b, {a, five});
    });
  });
}

}  // namespace
}  // namespace motley
