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

void Exchange::post_dispatch(int chunk, const Tokens& tokens, Workers& workers) {
  Impl& x = *impl_;
  if (chunk == 0) {
    x.tokens = tokens;
    x.columns = tokens.columns;
    x.dispatches.clear();
    x.scale_of_row.clear();
    const bool at_once = tokens.scale.has_value() && !x.per_host();
    for (std::size_t i = 0; at_once && i < x.choice.size(); ++i) {
      x.scale_of_row.push_back((*tokens.scale)[static_cast<std::size_t>(x.choice[i])]);
    }
    if (!x.is_local()) {
      x.received.resize(computed_rows() * x.columns, x.fill);
      if (!x.per_host()) x.send.resize(sent_rows() * x.columns, x.fill);
    }
  }
  if (x.is_local()) return;
  ++x.counters.exchanges;
  if (!x.per_host()) return x.dispatch_chunk(chunk, workers);
  if (chunk == 0) x.dispatch_per_host(workers);
}

void Exchange::Impl::dispatch_chunk(int chunk, Workers& workers) {
  const exchange::Chunk& c = route.chunks[static_cast<std::size_t>(chunk)];
  const std::span<float> rows = send.span().subspan(c.send_first * columns, c.send_rows * columns);
  const std::span<const float> scales = scale_of_row;
  encode_rows({.out = rows,
               .in = tokens.rows,
               .index = std::span(token).subspan(c.send_first, c.send_rows),
               .scale = scales.empty() ? scales : scales.subspan(c.send_first, c.send_rows),
               .columns = columns},
              workers);
  count(c.send);
  dispatches.push_back(exchange_rows(
      rows, c.send, received.span().subspan(c.receive_first * columns, c.receive_rows * columns),
      c.receive, columns, call()));
}

void Exchange::await_dispatch(int chunk, std::span<float> out, Workers& workers) {
  Impl& x = *impl_;
  const exchange::Chunk& c = x.route.chunks[static_cast<std::size_t>(chunk)];
  const std::span<float> rows =
      out.subspan(c.receive_first * x.columns, c.receive_rows * x.columns);
  if (x.is_local()) {
    // In the order of computing, the send buffer's.
    const std::span<const float> scales = x.scale_of_row;
    encode_rows({.out = rows,
                 .in = x.tokens.rows,
                 .index = std::span(x.token).subspan(c.receive_first, c.receive_rows),
                 .scale = scales.empty() ? scales : scales.subspan(c.receive_first, c.receive_rows),
                 .columns = x.columns},
                workers);
    return;
  }
  if (x.per_host()) {
    if (chunk == 0) {
      for (Request& request : x.dispatches) request.wait();
    }
  } else {
    x.dispatches[static_cast<std::size_t>(chunk)].wait();
  }
  const std::span<const float> scales =
      x.per_host() ? std::span<const float>(x.scale_of_row) : std::span<const float>();
  encode_rows({.out = rows,
               .in = x.received.span(),
               .index = std::span(x.arrival).subspan(c.receive_first, c.receive_rows),
               .scale = scales.empty() ? scales : scales.subspan(c.receive_first, c.receive_rows),
               .columns = x.columns},
              workers);
}

void Exchange::post_combine(int chunk, std::span<const float> in, Workers& workers) {
  Impl& x = *impl_;
  if (chunk == 0) {
    x.combines.clear();
    x.local = in;
    if (!x.is_local()) {
      x.back.resize(computed_rows() * x.columns, x.fill);
      x.returned.resize(sent_rows() * x.columns, x.fill);
    }
  }
  if (x.is_local()) return;
  const exchange::Chunk& c = x.route.chunks[static_cast<std::size_t>(chunk)];
  const std::span<float> rows =
      x.back.span().subspan(c.receive_first * x.columns, c.receive_rows * x.columns);
  encode_rows({.out = rows,
               .in = in,
               .index = std::span(x.route.computed).subspan(c.receive_first, c.receive_rows),
               .columns = x.columns},
              workers);
  ++x.counters.exchanges;
  x.count(c.receive);
  x.combines.push_back(x.exchange_rows(
      rows, c.receive, x.returned.span().subspan(c.send_first * x.columns, c.send_rows * x.columns),
      c.send, x.columns, x.call()));
}

std::span<const float> Exchange::await_combine() {
  Impl& x = *impl_;
  if (x.is_local()) return x.local;
  for (Request& request : x.combines) request.wait();
  return x.returned.span();
}

}  // namespace motley::moe
