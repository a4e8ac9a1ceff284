#include "moe/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "comm/error.h"

namespace motley::moe {
namespace {

std::int64_t sum_of(const std::vector<std::int64_t>& rows, const ChunkRange& range) {
  const auto first = rows.begin() + static_cast<std::ptrdiff_t>(range.first);
  return std::reduce(first, first + static_cast<std::ptrdiff_t>(range.count));
}

// Of a chunk's rows: to each rank, from each rank, and for each of this rank's experts.
struct ChunkRows {
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;
  std::vector<std::int64_t> experts;

  std::int64_t all_sent() const { return std::reduce(sent.begin(), sent.end()); }
  std::int64_t all_received() const { return std::reduce(received.begin(), received.end()); }
};

ChunkRows chunk_rows(const RankRows& rows, int chunk, int degree) {
  ChunkRows part;
  for (const auto& to : rows.sent)
    part.sent.push_back(sum_of(to, chunk_range(to.size(), chunk, degree)));
  const ChunkRange mine = chunk_range(rows.received[0].size(), chunk, degree);
  part.experts.resize(mine.count);
  for (const auto& from : rows.received) {
    part.received.push_back(sum_of(from, mine));
    for (std::size_t e = 0; e < mine.count; ++e) part.experts[e] += from[mine.first + e];
  }
  return part;
}

void check_rows(const LayerShape& shape, const RankRows& rows) {
  const auto fail = [](const std::string& what) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe builder: {}. Pass the rows of one rank's plan.", what));
  };
  if (shape.width < 1 || shape.hidden < 1 || shape.matrices < 2 || shape.value_bytes < 1) {
    fail(fmt::format("width {}, hidden {}, {} matrices, {} bytes a value", shape.width,
                     shape.hidden, shape.matrices, shape.value_bytes));
  }
  const std::size_t ranks = rows.sent.size();
  const auto rank = static_cast<std::size_t>(rows.rank);
  if (ranks == 0 || rows.received.size() != ranks || rows.rank < 0 || rank >= ranks) {
    fail(fmt::format("rank {} sends to {} ranks and gets from {}", rows.rank, ranks,
                     rows.received.size()));
  }
  for (std::size_t from = 0; from < ranks; ++from) {
    if (rows.received[from].size() != rows.sent[rank].size()) {
      fail(fmt::format("rank {} has {} experts, but gets from rank {} rows of {}", rows.rank,
                       rows.sent[rank].size(), from, rows.received[from].size()));
    }
  }
  if (rows.sent[rank] != rows.received[rank]) {
    fail(fmt::format("rank {} does not get from itself what it sends itself", rows.rank));
  }
  for (const auto* side : {&rows.sent, &rows.received}) {
    for (const auto& counts : *side) {
      for (const std::int64_t count : counts) {
        if (count < 0) fail(fmt::format("{} rows of an expert", count));
      }
    }
  }
}

// In bytes, but for this rank's own, which are no messages.
std::vector<std::int64_t> messages(std::vector<std::int64_t> rows, int rank, std::int64_t each) {
  for (std::int64_t& count : rows) count *= each;
  rows[static_cast<std::size_t>(rank)] = 0;
  return rows;
}

// Products and bytes of the experts, `passes` times each matrix. Where rows are summed over, as in
// gradients of weights, the product counts as one of so many rows: it is as long.
void add_experts(Op& op, const LayerShape& shape, const std::vector<std::int64_t>& experts,
                 int passes) {
  const auto value = static_cast<std::int64_t>(shape.value_bytes);
  for (const std::int64_t rows : experts) {
    if (rows == 0) continue;
    for (int pass = 0; pass < passes; ++pass) {
      for (int matrix = 1; matrix < shape.matrices; ++matrix)
        op.gemms.push_back({rows, shape.hidden, shape.width});
      op.gemms.push_back({rows, shape.width, shape.hidden});
    }
    const std::int64_t weights = std::int64_t{shape.matrices} * shape.width * shape.hidden;
    const std::int64_t values =
        rows * (2 * shape.width + std::int64_t{shape.matrices} * shape.hidden);
    op.rows += rows;
    op.bytes += passes * (weights + values) * value;
  }
}

}  // namespace

struct TokenAllToAll::Kinds {
  OpKind encode, experts, decode;
  int passes;  // products for each matrix of an expert
};

RankRows rows_of(const Plan& plan, const Placement& placement,
                 std::span<const std::int64_t> counts) {
  const auto ranks = static_cast<std::size_t>(placement.ranks());
  const std::size_t mine = placement.of_rank(plan.rank).size();
  if (counts.size() != ranks * mine || plan.send_count.size() != placement.physical().size()) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("moe builder: {} counts of {} ranks and {} experts, a plan of {} experts "
                    "where the placement has {}. Pass what belongs together.",
                    counts.size(), ranks, mine, plan.send_count.size(),
                    placement.physical().size()));
  }
  RankRows rows{.rank = plan.rank,
                .tokens = static_cast<std::int64_t>(plan.tokens),
                .sent = {},
                .received = {}};
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    const auto first = plan.send_count.begin() + placement.first_of_rank(rank);
    rows.sent.emplace_back(first, first + std::ssize(placement.of_rank(rank)));
    const auto from = counts.subspan(static_cast<std::size_t>(rank) * mine, mine);
    rows.received.emplace_back(from.begin(), from.end());
  }
  return rows;
}

Lane lane_of(const Topology& topology) {
  return topology.hosts().size() > 1 ? Lane::kInterHost : Lane::kIntraHost;
}

ChunkRange chunk_range(std::size_t mine, int chunk, int degree) {
  const auto c = static_cast<std::size_t>(chunk), n = static_cast<std::size_t>(degree);
  const std::size_t first = c * mine / n;
  return {first, (c + 1) * mine / n - first};
}

TokenAllToAll::TokenAllToAll(TokenAllToAllOptions options) : options_(std::move(options)) {
  if (options_.degree >= 1 && talks(options_.lane)) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe builder: degree {} on lane {}. Take at least 1, on a lane between "
                          "ranks.",
                          options_.degree, moe::name(options_.lane)));
}

std::string TokenAllToAll::name() const {
  return fmt::format("token_all_to_all, degree {}", options_.degree);
}

Program TokenAllToAll::forward(const LayerShape& shape, const RankRows& rows) const {
  return build(shape, rows, {OpKind::kEncode, OpKind::kExperts, OpKind::kDecode, 1});
}

Program TokenAllToAll::backward(const LayerShape& shape, const RankRows& rows) const {
  return build(shape, rows,
               {OpKind::kEncodeGradient, OpKind::kExpertsGradient, OpKind::kDecodeGradient, 2});
}

Program TokenAllToAll::build(const LayerShape& shape, const RankRows& rows,
                             const Kinds& kinds) const {
  check_rows(shape, rows);
  const std::int64_t each = shape.width * static_cast<std::int64_t>(shape.value_bytes);
  Program program{.strategy = name(), .ops = {}};
  Op decode{.kind = kinds.decode, .lane = Lane::kCompute, .bytes = rows.tokens * each};
  for (int chunk = 0; chunk < options_.degree; ++chunk) {
    const ChunkRows part = chunk_rows(rows, chunk, options_.degree);
    const std::int64_t out = part.all_sent();
    const int encode = program.add({.kind = kinds.encode,
                                    .lane = Lane::kCompute,
                                    .chunk = chunk,
                                    .priority = 2,
                                    .rows = out,
                                    .bytes = 2 * out * each});
    Op dispatch{.kind = OpKind::kDispatch,
                .lane = options_.lane,
                .chunk = chunk,
                .priority = 2,
                .after = {encode},
                .rows = out,
                .bytes = out * each,
                .sent = messages(part.sent, rows.rank, each),
                .received = messages(part.received, rows.rank, each),
                .algorithm = options_.algorithm};
    Op experts{.kind = kinds.experts, .lane = Lane::kCompute, .chunk = chunk, .priority = 1};
    add_experts(experts, shape, part.experts, kinds.passes);
    Op combine{.kind = OpKind::kCombine,
               .lane = options_.lane,
               .chunk = chunk,
               .priority = 1,
               .rows = part.all_received(),
               .bytes = part.all_received() * each,
               .sent = dispatch.received,
               .received = dispatch.sent,
               .algorithm = options_.algorithm};
    experts.after = {program.add(std::move(dispatch))};
    combine.after = {program.add(std::move(experts))};
    decode.after.push_back(program.add(std::move(combine)));
    decode.rows += out;
    decode.bytes += out * each;
  }
  program.add(std::move(decode));
  return program;
}

}  // namespace motley::moe
