#include "moe/exchange/per_host.h"

#include <algorithm>

namespace motley::moe::exchange {
Hosts::Hosts(const Topology& topology) : ranks_of(topology.hosts().size()) {
  for (int r = 0; r < topology.ranks(); ++r) {
    host_of.push_back(static_cast<std::size_t>(topology.host_of(r)));
    ranks_of[host_of.back()].push_back(static_cast<std::size_t>(r));
  }
}

std::size_t Hosts::forwarder(std::size_t from, std::size_t host) const {
  if (host_of[from] == host) return from;
  const std::vector<std::size_t>& own = ranks_of[host_of[from]];
  const auto number = static_cast<std::size_t>(std::ranges::find(own, from) - own.begin());
  return ranks_of[host][number % ranks_of[host].size()];
}

Crossing make_crossing(const Plan& plan, const Placement& placement, const Hosts& hosts) {
  Crossing crossing;
  const std::size_t own = hosts.host_of[static_cast<std::size_t>(plan.rank)];
  for (std::size_t host = 0; host < hosts.ranks_of.size(); ++host) {
    std::vector<std::int64_t> tokens;
    std::vector<std::int64_t> all;  // of every row
    for (const std::size_t to : hosts.ranks_of[host]) {
      if (host == own) break;
      const auto first = static_cast<std::size_t>(placement.first_of_rank(static_cast<int>(to)));
      const auto end = static_cast<std::size_t>(placement.first_of_rank(static_cast<int>(to) + 1));
      for (std::int64_t row = plan.send_first[first]; row < plan.send_first[end]; ++row) {
        all.push_back(plan.choice[static_cast<std::size_t>(row)] / plan.top_k);
      }
    }
    tokens = all;
    std::ranges::sort(tokens);
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    std::vector<std::int32_t> token_of;
    for (const std::int64_t token : all) {
      token_of.push_back(
          static_cast<std::int32_t>(std::ranges::lower_bound(tokens, token) - tokens.begin()));
    }
    crossing.tokens.push_back(std::move(tokens));
    crossing.token_of.push_back(std::move(token_of));
  }
  return crossing;
}

Forwarding make_forwarding(const CountMatrix& counts, const std::vector<std::int64_t>& distinct,
                           const Placement& placement, const Hosts& hosts, int rank) {
  const auto me = static_cast<std::size_t>(rank);
  const std::size_t ranks = hosts.host_of.size(), here = hosts.host_of[me];
  const auto tokens = [&](std::size_t from, std::size_t host) {
    return static_cast<std::size_t>(distinct[from * hosts.ranks_of.size() + host]);
  };
  const auto rows_for = [&](std::size_t from, std::size_t host) {
    std::size_t rows = 0;
    for (const std::size_t to : hosts.ranks_of[host]) {
      rows += rows_between(counts, placement, {from, to});
    }
    return rows;
  };
  Forwarding f;
  for (auto* list : {&f.cross_send, &f.cross_receive, &f.note_send, &f.note_receive, &f.send,
                     &f.receive, &f.base}) {
    list->assign(ranks, 0);
  }
  for (std::size_t host = 0; host < hosts.ranks_of.size(); ++host) {
    if (host == here) continue;
    const std::size_t to = hosts.forwarder(me, host);
    f.cross_send[to] = tokens(me, host);
    f.note_send[to] = rows_for(me, host);
  }
  std::size_t next = 0;
  for (const std::size_t by : hosts.ranks_of[here]) {
    for (std::size_t from = 0; from < ranks; ++from) {
      if (hosts.forwarder(from, here) != by) continue;
      f.base[from] = next;
      const std::size_t rows = rows_between(counts, placement, {from, me});
      f.receive[by] += rows;
      next += rows;
      if (by != me) continue;
      if (from != me) {
        f.cross_receive[from] = tokens(from, here);
        f.note_receive[from] = rows_for(from, here);
      }
      for (const std::size_t to : hosts.ranks_of[here]) {
        f.send[to] += rows_between(counts, placement, {from, to});
      }
    }
  }
  return f;
}

}  // namespace motley::moe::exchange
