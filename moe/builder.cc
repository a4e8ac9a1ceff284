#include "moe/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "comm/error.h"
#include "moe/exchange/route.h"

namespace motley::moe {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& rows) {
  return std::reduce(rows.begin(), rows.end());
}

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe builder: {}. Pass the rows of one rank's plan.", what));
}

void check_exchange(const RowExchange& exchange, int rank, std::size_t ranks) {
  if (exchange.sent.size() != ranks || exchange.received.size() != ranks) {
    fail(fmt::format("a chunk goes to {} and comes from {} of {} ranks", exchange.sent.size(),
                     exchange.received.size(), ranks));
  }
  const auto own = static_cast<std::size_t>(rank);
  if (rank < 0 || own >= ranks) fail(fmt::format("rank {} of {}", rank, ranks));
  if (exchange.sent[own] != exchange.received[own]) {
    fail(fmt::format("rank {} gets {} rows from itself, but sends itself {}", rank,
                     exchange.received[own], exchange.sent[own]));
  }
  for (const auto* rows : {&exchange.sent, &exchange.received}) {
    for (const std::int64_t count : *rows) {
      if (count < 0) fail(fmt::format("{} rows", count));
    }
  }
}

void check_rows(const LayerShape& shape, const RankRows& rows) {
  if (shape.width < 1 || shape.hidden < 1 || shape.matrices < 2 || shape.value_bytes < 1) {
    fail(fmt::format("width {}, hidden {}, {} matrices, {} bytes a value", shape.width,
                     shape.hidden, shape.matrices, shape.value_bytes));
  }
  if (rows.chunks.empty()) fail("no chunks");
  for (const ChunkRows& chunk : rows.chunks) {
    const std::size_t ranks = rows.chunks[0].dispatch.sent.size();
    check_exchange(chunk.dispatch, rows.rank, ranks);
    check_exchange(chunk.combine, rows.rank, ranks);
    for (const std::int64_t product : chunk.products) {
      if (product < 0) fail(fmt::format("a product of {} rows", product));
    }
  }
}

// In bytes, but for this rank's own, which are no messages.
std::vector<std::int64_t> messages(std::vector<std::int64_t> rows, int rank, std::int64_t each) {
  for (std::int64_t& count : rows) count *= each;
  rows[static_cast<std::size_t>(rank)] = 0;
  return rows;
}

// Products and bytes of experts: one product for each matrix and segment. Where rows are summed
// over, as in gradients of parameters, it counts as one of so many rows: it is as long.
void add_products(Op& op, const LayerShape& shape, const std::vector<std::int64_t>& products) {
  const auto value = static_cast<std::int64_t>(shape.value_bytes);
  for (const std::int64_t rows : products) {
    if (rows == 0) continue;
    for (int matrix = 1; matrix < shape.matrices; ++matrix)
      op.gemms.push_back({rows, shape.hidden, shape.width});
    op.gemms.push_back({rows, shape.width, shape.hidden});
    const std::int64_t weights = std::int64_t{shape.matrices} * shape.width * shape.hidden;
    const std::int64_t values =
        rows * (2 * shape.width + std::int64_t{shape.matrices} * shape.hidden);
    op.rows += rows;
    op.bytes += (weights + values) * value;
  }
}

}  // namespace

struct TokenAllToAll::Kinds {
  OpKind encode, experts, decode;
  bool backward;
};

// The operations that those of the next chunk come after; -1: none.
struct TokenAllToAll::Chain {
  int encode = -1;
  int weights = -1;
  int experts = -1;
  int combine = -1;
};

RankRows rows_of(const RowCounts& counts) {
  const Placement& placement = counts.placement;
  const std::size_t experts = placement.physical().size();
  if (counts.counts.size() != static_cast<std::size_t>(placement.ranks()) * experts) {
    fail(fmt::format("{} counts of {} ranks and {} physical experts", counts.counts.size(),
                     placement.ranks(), experts));
  }
  if (counts.rank < 0 || counts.rank >= placement.ranks()) {
    fail(fmt::format("rank {} of {}", counts.rank, placement.ranks()));
  }
  for (const std::int64_t count : counts.counts) {
    if (count < 0) fail(fmt::format("{} rows of an expert", count));
  }
  if (counts.degree < 1) fail(fmt::format("degree {}", counts.degree));
  const exchange::CountMatrix matrix{{counts.counts.begin(), counts.counts.end()}, experts};
  return exchange::rank_rows(
      exchange::make_route(matrix, placement, counts.rank, {counts.degree, counts.piece_rows}),
      counts.rank, counts.tokens);
}

Lane lane_of(const Topology& topology) {
  return topology.hosts().size() > 1 ? Lane::kInterHost : Lane::kIntraHost;
}

TokenAllToAll::TokenAllToAll(TokenAllToAllOptions options) : options_(std::move(options)) {
  if (talks(options_.lane)) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe builder: calls on lane {}. Take a lane between ranks.",
                          moe::name(options_.lane)));
}

std::string TokenAllToAll::name() const { return "token_all_to_all"; }

Program TokenAllToAll::forward(const LayerShape& shape, const RankRows& rows) const {
  return build(shape, rows, {OpKind::kEncode, OpKind::kExperts, OpKind::kDecode, false});
}

Program TokenAllToAll::backward(const LayerShape& shape, const RankRows& rows) const {
  return build(shape, rows,
               {OpKind::kEncodeGradient, OpKind::kExpertsGradient, OpKind::kDecodeGradient, true});
}

// Those of the first chunk have `before` without operations.
TokenAllToAll::Chain TokenAllToAll::add_chunk(Program& program, const LayerShape& shape,
                                              const RankRows& rows, const Kinds& kinds,
                                              const Chain& before) const {
  const std::int64_t each = shape.width * static_cast<std::int64_t>(shape.value_bytes);
  const bool first = before.encode < 0;
  const int number = first ? 0 : program.ops[static_cast<std::size_t>(before.encode)].chunk + 1;
  const ChunkRows& chunk = rows.chunks[static_cast<std::size_t>(number)];
  const auto call = [&](OpKind kind, int priority, const RowExchange& exchange) {
    return Op{.kind = kind,
              .lane = options_.lane,
              .chunk = number,
              .priority = priority,
              .rows = sum(exchange.sent),
              .bytes = sum(exchange.sent) * each,
              .sent = messages(exchange.sent, rows.rank, each),
              .received = messages(exchange.received, rows.rank, each),
              .algorithm = options_.algorithm};
  };
  Chain added = before;
  const std::int64_t out = sum(chunk.dispatch.sent);
  Op encode{
      .kind = kinds.encode, .chunk = number, .priority = 2, .rows = out, .bytes = 2 * out * each};
  if (!first) encode.after = {before.encode};
  Op dispatch = call(OpKind::kDispatch, 2, chunk.dispatch);
  dispatch.after = {added.encode = program.add(std::move(encode))};
  Op experts{.kind = kinds.experts, .chunk = number, .priority = 1};
  experts.after = {program.add(std::move(dispatch))};
  if (first && kinds.backward) {
    std::int64_t back = 0;
    for (const ChunkRows& one : rows.chunks) back += sum(one.combine.received);
    added.weights = program.add({.kind = OpKind::kWeightsGradient,
                                 .priority = 1,
                                 .after = {added.encode},
                                 .rows = back,
                                 .bytes = (rows.tokens + back) * each});
    experts.after.push_back(added.weights);
  }
  if (!first) experts.after.push_back(before.experts);
  add_products(experts, shape, chunk.products);
  Op combine = call(OpKind::kCombine, 1, chunk.combine);
  combine.after = {added.experts = program.add(std::move(experts))};
  added.combine = program.add(std::move(combine));
  return added;
}

Program TokenAllToAll::build(const LayerShape& shape, const RankRows& rows,
                             const Kinds& kinds) const {
  check_rows(shape, rows);
  const std::int64_t each = shape.width * static_cast<std::int64_t>(shape.value_bytes);
  Program program{.strategy = fmt::format("{}, degree {}", name(), rows.chunks.size()), .ops = {}};
  Op decode{.kind = kinds.decode, .bytes = rows.tokens * each};
  Op parameters{.kind = OpKind::kParametersGradient};
  Chain chain;
  for (const ChunkRows& chunk : rows.chunks) {
    chain = add_chunk(program, shape, rows, kinds, chain);
    add_products(parameters, shape, chunk.products);
    decode.after.push_back(chain.combine);
    decode.rows += sum(chunk.combine.received);
    decode.bytes += sum(chunk.combine.received) * each;
  }
  if (kinds.backward) {
    parameters.after = {chain.experts};
    decode.after.push_back(program.add(std::move(parameters)));
  }
  program.add(std::move(decode));
  return program;
}

}  // namespace motley::moe
