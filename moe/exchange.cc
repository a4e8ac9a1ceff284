#include "moe/exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/error.h"
#include "comm/topology.h"
#include "moe/exchange/impl.h"

namespace motley::moe {
namespace {

constexpr int kMostChunks = static_cast<int>(exchange::kMostPieces);

void require(const Communicator& comm, const Placement& placement, const ExchangeOptions& options) {
  if (placement.ranks() != comm.size()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe exchange: the placement has {} ranks, the communicator {}. They "
                            "must be the same ranks.",
                            placement.ranks(), comm.size()));
  }
  for (int r = 0; r < placement.ranks(); ++r) {
    if (placement.alive(r)) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe exchange: rank {} of the placement is dead. Place experts on the "
                            "ranks that are left, with a communicator of theirs.",
                            r));
  }
  if (options.degree >= 1 && options.degree <= kMostChunks) return;
  throw Error(ErrorCode::kInvalid, fmt::format("moe exchange: degree is {}. It must be in [1, {}].",
                                               options.degree, kMostChunks));
}

}  // namespace

const char* name(ExchangeKind kind) noexcept {
  switch (kind) {
    case ExchangeKind::kAuto:
      return "auto";
    case ExchangeKind::kFlat:
      return "flat";
    case ExchangeKind::kTwoLevel:
      return "two_level";
    case ExchangeKind::kLeader:
      return "leader";
    case ExchangeKind::kPipelined:
      return "pipelined";
    case ExchangeKind::kPerHost:
      return "per_host";
  }
  return "?";
}

Exchange::Exchange(Communicator& comm, const Placement& placement, const ExchangeOptions& options) {
  require(comm, placement, options);
  impl_ = std::make_unique<Impl>(Impl{&comm, placement, options, exchange::Hosts(comm.topology())});
}
Exchange::~Exchange() = default;
Exchange::Exchange(Exchange&&) noexcept = default;
Exchange& Exchange::operator=(Exchange&&) noexcept = default;

std::string Exchange::Impl::algorithm() const {
  switch (options.kind) {
    case ExchangeKind::kAuto:
      return "auto";
    case ExchangeKind::kTwoLevel:
      return "two_level";
    case ExchangeKind::kLeader:
      return "leader";
    case ExchangeKind::kPipelined:
      return "two_level_pipelined";
    case ExchangeKind::kFlat:
    case ExchangeKind::kPerHost:
      break;
  }
  return "direct";
}

void Exchange::begin(const ExchangeInput& input) {
  impl_->plan = nullptr;
  impl_->agree(input);
  impl_->plan = input.plan;
  impl_->lay_out();
}

int Exchange::chunks() const noexcept { return impl_->options.degree; }
std::size_t Exchange::sent_rows() const noexcept { return impl_->route.sent.size(); }
std::size_t Exchange::computed_rows() const noexcept { return impl_->route.arrival.size(); }
std::span<const ExpertSegment> Exchange::segments(int chunk) const noexcept {
  return impl_->route.chunks[static_cast<std::size_t>(chunk)].segments;
}
std::span<const std::int64_t> Exchange::choice() const noexcept { return impl_->choice; }
std::span<const std::int64_t> Exchange::place() const noexcept { return impl_->place; }
bool Exchange::is_local() const noexcept { return impl_->is_local(); }
const ExchangeCounters& Exchange::counters() const noexcept { return impl_->counters; }
void Exchange::fill(Fill fill) noexcept { impl_->fill = fill; }

void Exchange::Impl::count(const std::vector<std::size_t>& rows) {
  const auto me = static_cast<std::size_t>(comm->rank());
  for (std::size_t to = 0; to < rows.size(); ++to) {
    if (to == me || rows[to] == 0) continue;
    const auto bytes = static_cast<std::int64_t>(rows[to] * columns * sizeof(float));
    counters.row_bytes += bytes;
    ++counters.messages;
    if (hosts.host_of[to] == hosts.host_of[me]) continue;
    counters.host_row_bytes += bytes;
    ++counters.host_messages;
  }
}

Request Exchange::Impl::exchange_rows(std::span<const float> in,
                                      const std::vector<std::size_t>& in_rows, std::span<float> out,
                                      const std::vector<std::size_t>& out_rows, std::size_t width,
                                      const CallOptions& call_options) const {
  std::vector<std::size_t> in_counts = in_rows, out_counts = out_rows;
  for (std::size_t& n : in_counts) n *= width;
  for (std::size_t& n : out_counts) n *= width;
  return comm->all_to_all_v({in, in_counts}, {out, out_counts}, call_options);
}

RankRows Exchange::rows() const {
  const Impl& x = *impl_;
  RankRows rows =
      exchange::rank_rows(x.route, x.comm->rank(), static_cast<std::int64_t>(x.plan->tokens));
  if (!x.per_host()) return rows;
  for (ChunkRows& chunk : rows.chunks) {
    std::ranges::fill(chunk.dispatch.sent, 0);
    std::ranges::fill(chunk.dispatch.received, 0);
  }
  RowExchange& first = rows.chunks[0].dispatch;
  const exchange::Forwarding& f = x.forwarding;
  for (std::size_t r = 0; r < first.sent.size(); ++r) {
    first.sent[r] = static_cast<std::int64_t>(f.cross_send[r] + f.send[r]);
    first.received[r] = static_cast<std::int64_t>(f.cross_receive[r] + f.receive[r]);
  }
  return rows;
}
std::string Exchange::algorithm() const { return impl_->algorithm(); }

void Exchange::Impl::begin_dispatch(const Exchange::Tokens& with) {
  tokens = with;
  columns = tokens.columns;
  scale_of_row.clear();
  const bool at_once = tokens.scale.has_value() && !per_host();
  for (std::size_t i = 0; at_once && i < choice.size(); ++i) {
    scale_of_row.push_back((*tokens.scale)[static_cast<std::size_t>(choice[i])]);
  }
  if (is_local()) return;
  received.resize(route.arrival.size() * columns, fill);
  if (!per_host()) send.resize(route.sent.size() * columns, fill);
}

void Exchange::pack_dispatch(int chunk, const Tokens& tokens, Workers& workers) {
  Impl& x = *impl_;
  if (chunk == 0) x.begin_dispatch(tokens);
  if (x.is_local()) return;
  if (x.per_host()) {
    if (chunk == 0) x.pack_crossing(workers);
    return;
  }
  const exchange::Chunk& c = x.route.chunks[static_cast<std::size_t>(chunk)];
  const std::span<const float> scales = x.scale_of_row;
  encode_rows({.out = x.send.span().subspan(c.send_first * x.columns, c.send_rows * x.columns),
               .in = x.tokens.rows,
               .index = std::span<const std::int64_t>(x.token).subspan(c.send_first, c.send_rows),
               .scale = scales.empty() ? scales : scales.subspan(c.send_first, c.send_rows),
               .columns = x.columns},
              workers);
}

Request Exchange::dispatch(int chunk) {
  Impl& x = *impl_;
  if (x.is_local()) return {};
  ++x.counters.exchanges;
  if (x.per_host()) return chunk == 0 ? x.dispatch_per_host() : Request();
  const exchange::Chunk& c = x.route.chunks[static_cast<std::size_t>(chunk)];
  x.count(c.send);
  return x.exchange_rows(
      x.send.span().subspan(c.send_first * x.columns, c.send_rows * x.columns), c.send,
      x.received.span().subspan(c.receive_first * x.columns, c.receive_rows * x.columns), c.receive,
      x.columns, x.call());
}

void Exchange::unpack_dispatch(int chunk, std::span<float> out, Workers& workers) {
  Impl& x = *impl_;
  const exchange::Chunk& c = x.route.chunks[static_cast<std::size_t>(chunk)];
  // Where rows need not travel they are made now: the send buffer is in the order of computing.
  const bool scaled_here = x.is_local() || x.per_host();
  const std::span<const float> scales =
      scaled_here ? std::span<const float>(x.scale_of_row) : std::span<const float>();
  const std::vector<std::int64_t>& index = x.is_local() ? x.token : x.arrival;
  encode_rows(
      {.out = out.subspan(c.receive_first * x.columns, c.receive_rows * x.columns),
       .in = x.is_local() ? x.tokens.rows : std::span<const float>(x.received.span()),
       .index = std::span<const std::int64_t>(index).subspan(c.receive_first, c.receive_rows),
       .scale = scales.empty() ? scales : scales.subspan(c.receive_first, c.receive_rows),
       .columns = x.columns},
      workers);
}

void Exchange::pack_combine(int chunk, std::span<const float> in, Workers& workers) {
  Impl& x = *impl_;
  if (chunk == 0) {
    x.local = in;
    if (!x.is_local()) {
      x.back.resize(computed_rows() * x.columns, x.fill);
      x.returned.resize(sent_rows() * x.columns, x.fill);
    }
  }
  if (x.is_local()) return;
  const exchange::Chunk& c = x.route.chunks[static_cast<std::size_t>(chunk)];
  const std::span<const std::int64_t> computed = x.route.computed;
  encode_rows(
      {.out = x.back.span().subspan(c.receive_first * x.columns, c.receive_rows * x.columns),
       .in = in,
       .index = computed.subspan(c.receive_first, c.receive_rows),
       .columns = x.columns},
      workers);
}

Request Exchange::combine(int chunk) {
  Impl& x = *impl_;
  if (x.is_local()) return {};
  const exchange::Chunk& c = x.route.chunks[static_cast<std::size_t>(chunk)];
  ++x.counters.exchanges;
  x.count(c.receive);
  return x.exchange_rows(
      x.back.span().subspan(c.receive_first * x.columns, c.receive_rows * x.columns), c.receive,
      x.returned.span().subspan(c.send_first * x.columns, c.send_rows * x.columns), c.send,
      x.columns, x.call());
}

std::span<const float> Exchange::combined() const {
  return impl_->is_local() ? impl_->local : std::span<const float>(impl_->returned.span());
}

}  // namespace motley::moe
