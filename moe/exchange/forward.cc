// ExchangeKind::kPerHost of exchange.h: rows across hosts once, then on within them.
#include <algorithm>
#include <numeric>

#include "moe/exchange/impl.h"

namespace motley::moe {
namespace {

std::size_t sum(const std::vector<std::size_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::size_t{0});
}

}  // namespace

// Tells the forwarders which distinct token each row is of. Once for a plan: backward sends the
// same rows.
void Exchange::Impl::exchange_notes() {
  std::vector<std::int32_t> mine;
  const auto me = static_cast<std::size_t>(comm->rank());
  for (std::size_t to = 0; to < hosts.host_of.size(); ++to) {
    const std::size_t host = hosts.host_of[to];
    if (host == hosts.host_of[me] || hosts.forwarder(me, host) != to) continue;
    mine.insert(mine.end(), crossing.token_of[host].begin(), crossing.token_of[host].end());
  }
  notes.resize(sum(forwarding.note_receive));
  comm->all_to_all_v({mine, forwarding.note_send}, {notes, forwarding.note_receive}, call()).wait();
}

Request Exchange::Impl::dispatch_per_host() {
  cross();
  Request handed = hand_on();
  if (tokens.scale.has_value()) exchange_scales();  // however few rows there are
  return handed;
}

void Exchange::Impl::pack_crossing(Workers& workers) {
  const auto me = static_cast<std::size_t>(comm->rank());
  const std::size_t here = hosts.host_of[me];
  std::vector<std::int64_t> crossing_tokens;  // distinct ones, by forwarder
  for (std::size_t to = 0; to < hosts.host_of.size(); ++to) {
    const std::size_t host = hosts.host_of[to];
    if (host == here || hosts.forwarder(me, host) != to) continue;
    const std::vector<std::int64_t>& list = crossing.tokens[host];
    crossing_tokens.insert(crossing_tokens.end(), list.begin(), list.end());
  }
  leaving.resize(crossing_tokens.size() * columns, fill);
  encode_rows({leaving.span(), tokens.rows, crossing_tokens, {}, columns}, workers);
}

void Exchange::Impl::cross() {
  crossed.resize(sum(forwarding.cross_receive) * columns, fill);
  count(forwarding.cross_send);
  exchange_rows(leaving.span(), forwarding.cross_send, crossed.span(), forwarding.cross_receive,
                columns, call())
      .wait();
}

// By receiver, then source: rows of `crossed`, or of this rank's own tokens.
Request Exchange::Impl::hand_on() {
  const auto me = static_cast<std::size_t>(comm->rank());
  const std::size_t here = hosts.host_of[me], ranks = hosts.host_of.size();
  send.resize(sum(forwarding.send) * columns, fill);
  std::vector<std::size_t> note(ranks), base(ranks);  // the next note, the first row, of a source
  std::exclusive_scan(forwarding.note_receive.begin(), forwarding.note_receive.end(), note.begin(),
                      std::size_t{0});
  std::exclusive_scan(forwarding.cross_receive.begin(), forwarding.cross_receive.end(),
                      base.begin(), std::size_t{0});
  float* out = send.data();
  const auto append = [&](const float* row) {
    std::copy_n(row, columns, out);
    out += columns;
  };
  for (const std::size_t to : hosts.ranks_of[here]) {
    for (std::size_t from = 0; from < ranks; ++from) {
      if (hosts.forwarder(from, here) != me) continue;
      const int first = placement.first_of_rank(static_cast<int>(to));
      const int end = placement.first_of_rank(static_cast<int>(to) + 1);
      if (from == me) {
        for (std::int64_t row = plan->send_first[static_cast<std::size_t>(first)];
             row < plan->send_first[static_cast<std::size_t>(end)]; ++row) {
          const std::int64_t t = plan->choice[static_cast<std::size_t>(row)] / plan->top_k;
          append(tokens.rows.data() + static_cast<std::size_t>(t) * columns);
        }
        continue;
      }
      for (std::size_t n = rows_between(from, to); n > 0; --n) {
        const auto row = static_cast<std::size_t>(notes[note[from]++]);
        append(crossed.data() + (base[from] + row) * columns);
      }
    }
  }
  count(forwarding.send);
  return exchange_rows(send.span(), forwarding.send, received.span(), forwarding.receive, columns,
                       call());
}

void Exchange::Impl::exchange_scales() {
  const auto me = static_cast<std::size_t>(comm->rank());
  std::vector<std::size_t> out, in;
  for (std::size_t r = 0; r < hosts.host_of.size(); ++r) {
    out.push_back(rows_between(me, r));
    in.push_back(rows_between(r, me));
  }
  std::vector<float> mine, theirs(sum(in));
  for (const std::int64_t i : plan->choice) {
    mine.push_back((*tokens.scale)[static_cast<std::size_t>(i)]);
  }
  comm->all_to_all_v({mine, out}, {theirs, in}, call()).wait();
  std::vector<std::size_t> base(in.size());
  std::exclusive_scan(in.begin(), in.end(), base.begin(), std::size_t{0});
  for (const exchange::Route::Source& source : route.source) {
    scale_of_row.push_back(theirs[base[static_cast<std::size_t>(source.rank)] + source.row]);
  }
}

}  // namespace motley::moe
