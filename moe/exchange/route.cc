#include "moe/exchange/route.h"

#include <algorithm>

namespace motley::moe::exchange {
namespace {

// How the rows for one physical expert are cut. Chunks are equal shares of all pieces of its rank.
struct Cut {
  std::size_t pieces = 1;
  std::size_t chunks = 1;
  std::size_t before = 0;  // pieces of the rank's experts before it
  std::size_t all = 1;     // pieces of all of them

  std::size_t chunk_of(std::size_t piece) const { return (before + piece) * chunks / all; }
  // The first row of a piece, of `rows` from one source.
  std::size_t first(std::size_t piece, std::size_t rows) const { return rows * piece / pieces; }
};

std::vector<Cut> cuts_of(const CountMatrix& counts, const Placement& placement,
                         const RouteOptions& options) {
  std::vector<Cut> cuts(counts.experts);
  for (int to = 0; to < placement.ranks(); ++to) {
    const auto first = static_cast<std::size_t>(placement.first_of_rank(to));
    const auto end = static_cast<std::size_t>(placement.first_of_rank(to + 1));
    std::size_t all = 0;
    for (std::size_t p = first; p < end; ++p) {
      std::size_t rows = 0;
      for (int r = 0; r < placement.ranks(); ++r) rows += counts.of(static_cast<std::size_t>(r), p);
      const std::size_t pieces = std::clamp<std::size_t>(
          rows / std::max<std::size_t>(options.piece_rows, 1), 1, kMostPieces);
      cuts[p] = {pieces, static_cast<std::size_t>(options.degree), all};
      all += pieces;
    }
    for (std::size_t p = first; p < end; ++p) cuts[p].all = all;
  }
  return cuts;
}

// Calls body(piece) for the pieces of `cut` that are in `chunk`.
template <class Body>
void each_piece(const Cut& cut, std::size_t chunk, const Body& body) {
  for (std::size_t piece = 0; piece < cut.pieces; ++piece) {
    if (cut.chunk_of(piece) == chunk) body(piece);
  }
}

struct Maker {
  const CountMatrix& counts;
  const Placement& placement;
  std::size_t rank;
  std::size_t ranks;
  const std::vector<Cut>& cuts;
  Route& route;

  std::size_t first_of(std::size_t r) const {
    return static_cast<std::size_t>(placement.first_of_rank(static_cast<int>(r)));
  }

  // What this rank sends in `chunk`. `row_first` [physical experts + 1]: where the plan's rows for
  // each begin.
  void send(std::size_t chunk, const std::vector<std::size_t>& row_first) {
    Chunk& c = route.chunks[chunk];
    c.send_first = route.sent.size();
    for (std::size_t to = 0; to < ranks; ++to) {
      const std::size_t before = route.sent.size();
      for (std::size_t p = first_of(to); p < first_of(to + 1); ++p) {
        const std::size_t rows = counts.of(rank, p);
        each_piece(cuts[p], chunk, [&](std::size_t piece) {
          for (std::size_t i = cuts[p].first(piece, rows); i < cuts[p].first(piece + 1, rows); ++i)
            route.sent.push_back(static_cast<std::int64_t>(row_first[p] + i));
        });
      }
      c.send.push_back(route.sent.size() - before);
    }
    c.send_rows = route.sent.size() - c.send_first;
  }

  void receive(std::size_t chunk) {
    Chunk& c = route.chunks[chunk];
    c.receive_first = route.arrival.size();
    const std::size_t mine = first_of(rank), experts = first_of(rank + 1) - mine;
    // Where the rows from each rank for each expert arrive, in this chunk.
    std::vector<std::size_t> arrival(ranks * experts);
    std::size_t next = c.receive_first;
    for (std::size_t from = 0; from < ranks; ++from) {
      const std::size_t before = next;
      for (std::size_t e = 0; e < experts; ++e) {
        arrival[from * experts + e] = next;
        const std::size_t rows = counts.of(from, mine + e);
        const Cut& cut = cuts[mine + e];
        each_piece(cut, chunk, [&](std::size_t piece) {
          next += cut.first(piece + 1, rows) - cut.first(piece, rows);
        });
      }
      c.receive.push_back(next - before);
    }
    c.receive_rows = next - c.receive_first;
    for (std::size_t e = 0; e < experts; ++e) {
      each_piece(cuts[mine + e], chunk, [&](std::size_t piece) {
        const std::size_t first = route.arrival.size();
        for (std::size_t from = 0; from < ranks; ++from) {
          take(from, mine + e, piece, arrival[from * experts + e]);
        }
        c.segments.push_back({e, first, route.arrival.size() - first});
      });
    }
  }

  // Puts a piece of what `from` sends for `physical` behind what is to be computed.
  void take(std::size_t from, std::size_t physical, std::size_t piece, std::size_t& arrival) {
    std::size_t before = 0;  // rows of the same source for earlier experts
    for (std::size_t p = first_of(rank); p < physical; ++p) before += counts.of(from, p);
    const std::size_t rows = counts.of(from, physical);
    const Cut& cut = cuts[physical];
    for (std::size_t i = cut.first(piece, rows); i < cut.first(piece + 1, rows); ++i) {
      route.arrival.push_back(static_cast<std::int64_t>(arrival++));
      route.source.push_back({static_cast<int>(from), before + i});
    }
  }
};

std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return place;
}

}  // namespace

std::size_t rows_between(const CountMatrix& counts, const Placement& placement, Way way) {
  const auto first = static_cast<std::size_t>(placement.first_of_rank(static_cast<int>(way.to)));
  const auto end = static_cast<std::size_t>(placement.first_of_rank(static_cast<int>(way.to) + 1));
  std::size_t rows = 0;
  for (std::size_t p = first; p < end; ++p) rows += counts.of(way.from, p);
  return rows;
}

Route make_route(const CountMatrix& counts, const Placement& placement, int rank,
                 const RouteOptions& options) {
  const auto me = static_cast<std::size_t>(rank);
  const std::vector<Cut> cuts = cuts_of(counts, placement, options);
  std::vector<std::size_t> row_first = {0};
  for (std::size_t p = 0; p < counts.experts; ++p) {
    row_first.push_back(row_first.back() + counts.of(me, p));
  }
  Route route;
  route.chunks.resize(static_cast<std::size_t>(options.degree));
  Maker maker{counts, placement, me, static_cast<std::size_t>(placement.ranks()), cuts, route};
  for (std::size_t chunk = 0; chunk < route.chunks.size(); ++chunk) {
    maker.send(chunk, row_first);
    maker.receive(chunk);
  }
  route.place = inverse(route.sent);
  route.computed = inverse(route.arrival);
  return route;
}

RankRows rank_rows(const Route& route, int rank, std::int64_t tokens) {
  RankRows rows{.rank = rank, .tokens = tokens, .chunks = {}};
  for (const Chunk& chunk : route.chunks) {
    const RowExchange there{{chunk.send.begin(), chunk.send.end()},
                            {chunk.receive.begin(), chunk.receive.end()}};
    ChunkRows& out = rows.chunks.emplace_back(ChunkRows{there, {there.received, there.sent}, {}});
    for (const ExpertSegment& segment : chunk.segments)
      out.products.push_back(static_cast<std::int64_t>(segment.rows));
  }
  return rows;
}

}  // namespace motley::moe::exchange
