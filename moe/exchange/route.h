// moe/exchange/route.h: who sends which rows in which chunk of a pipeline, and where they stand
// among the rows that a rank computes on. A pure function of the counts of all ranks.
//
// Rows are sent by chunk, then destination, expert, token; they arrive by chunk, then source,
// expert, token; they are computed on by chunk, then expert, piece, source, token. A piece is an
// equal share of the rows of every source for one expert: as many as `piece_rows` allows, however
// many chunks there are, so that the products are the same for all degrees of pipelining.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "moe/expert_compute.h"
#include "moe/placement.h"
#include "moe/rank_rows.h"

namespace motley::moe::exchange {

// Rows from every rank for every physical expert, [ranks, physical experts].
struct CountMatrix {
  std::vector<std::int64_t> count;
  std::size_t experts = 0;  // physical
  std::size_t of(std::size_t rank, std::size_t physical) const {
    return static_cast<std::size_t>(count[rank * experts + physical]);
  }
};

struct Way {
  std::size_t from = 0;
  std::size_t to = 0;
};
// Rows from one rank for another.
std::size_t rows_between(const CountMatrix& counts, const Placement& placement, Way way);

// A slice of this rank's buffers.
struct Chunk {
  std::vector<std::size_t> send, receive;  // [ranks], rows
  std::size_t send_first = 0, send_rows = 0;
  std::size_t receive_first = 0, receive_rows = 0;  // in order of arrival and of computing
  std::vector<ExpertSegment> segments;              // slot: index in Placement::of_rank()
};

struct Route {
  std::vector<Chunk> chunks;
  std::vector<std::int64_t> sent;      // [rows sent], by place in the send buffer: the plan's row
  std::vector<std::int64_t> place;     // [rows sent], by the plan's row: place in the send buffer
  std::vector<std::int64_t> arrival;   // [rows computed], by place in computing: place of arrival
  std::vector<std::int64_t> computed;  // [rows computed], by place of arrival: place in computing
  // [rows computed], by place in computing: the rank it came from and its number among the rows
  // that the rank's plan has for this one.
  struct Source {
    int rank = 0;
    std::size_t row = 0;
  };
  std::vector<Source> source;
};

struct RouteOptions {
  int degree = 1;                // chunks
  std::size_t piece_rows = 512;  // rows of a piece, at least, of all sources together
};

inline constexpr std::size_t kMostPieces = 8;

Route make_route(const CountMatrix& counts, const Placement& placement, int rank,
                 const RouteOptions& options);
// What `rank`, whose route it is, sends and gets.
RankRows rank_rows(const Route& route, int rank, std::int64_t tokens);

}  // namespace motley::moe::exchange
