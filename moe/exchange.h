// moe/exchange.h: rows to the ranks of their experts and back, over comm's all-to-all.
//
//   Exchange exchange(comm, placement, {.kind = ExchangeKind::kTwoLevel, .degree = 2});
//   exchange.begin({.plan = &plan});                         // counts: always, on every rank
//   for (int c = 0; c < exchange.chunks(); ++c) {
//     exchange.pack_dispatch(c, tokens, workers);
//     exchange.dispatch(c).wait();
//     exchange.unpack_dispatch(c, rows, workers);            // compute on segments(c) of them
//     exchange.pack_combine(c, results, workers);
//     exchange.combine(c).wait();
//   }
//   exchange.combined();                                     // rows as they were sent
//
// All ranks of the placement call the same in the same order, whatever their plans are: no call is
// left out for want of rows. Bits never depend on kind or degree. dispatch() and combine(), in one
// order, may be called by another thread than the rest, so that chunks travel while others are
// computed (executor.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "moe/expert_compute.h"
#include "moe/placement.h"
#include "moe/plan.h"
#include "moe/rank_rows.h"

namespace motley::moe {

// How rows travel.
enum class ExchangeKind : std::uint8_t {
  kAuto,       // comm chooses by sizes and topology
  kFlat,       // a message for every pair of ranks
  kTwoLevel,   // first within hosts, then between ranks of equal number; "2DH"
  kLeader,     // one message for every pair of hosts
  kPipelined,  // two levels at a time
  kPerHost,    // a token's row crosses to a host once, whichever experts there want it; there it is
               // handed on. Dispatch only: results come back one by one, as flat
};
const char* name(ExchangeKind kind) noexcept;

// All but the timeout must be alike on all ranks.
struct ExchangeOptions {
  ExchangeKind kind = ExchangeKind::kAuto;
  int degree = 1;                // chunks that are exchanged and computed at a time, [1, 8]
  std::size_t piece_rows = 512;  // an expert's rows are cut into at most 8 pieces of so many; a
                                 // piece is computed at once, and is in one chunk
  std::size_t most_tokens = 0;   // of a rank; 0: any number
  std::size_t most_rows = 0;     // that a rank computes on; 0: any number
  Duration timeout{};            // Options::timeout, if zero
};

// Since construction, of this rank.
struct ExchangeCounters {
  std::int64_t exchanges = 0;  // of rows: one for each chunk and direction
  std::int64_t count_exchanges = 0;
  std::int64_t row_bytes = 0;       // of rows for other ranks, dispatch and combine
  std::int64_t host_row_bytes = 0;  // of those, for ranks of other hosts
  std::int64_t messages = 0;        // to other ranks, as handed to comm: relays come on top
  std::int64_t host_messages = 0;   // of those, to other hosts
};

// What one rank brings to a count exchange.
struct ExchangeInput {
  const Plan* plan = nullptr;     // null: there is none, for `error`
  std::size_t tokens = 0;         // of this rank
  std::exception_ptr error = {};  // why there is no plan; all ranks then throw
  std::uint64_t agreement = 0;    // of what else all ranks must have alike
};

class Exchange {
 public:
  // Ranks of the placement are those of the communicator.
  //   errors  kInvalid if they differ in number, a rank is dead, or an option is out of range
  Exchange(Communicator& comm, const Placement& placement, const ExchangeOptions& options);
  ~Exchange();
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;

  // Tells all ranks how many rows to expect. Until the next call the plan's rows are known here.
  //   errors  on all ranks alike: kInvalid where one has more than most_tokens, would get more than
  //           most_rows, or had an error, with that rank; kMismatch where plans, options or
  //           `agreement` differ, or a plan is of another placement, epoch or rank
  void begin(const ExchangeInput& input);

  int chunks() const noexcept;
  std::size_t sent_rows() const noexcept;
  std::size_t computed_rows() const noexcept;
  // What a chunk brings to compute, in the order of rows as computed on.
  std::span<const ExpertSegment> segments(int chunk) const noexcept;
  // [rows sent], the choice of each row of the send buffer, and where each of the plan's rows
  // stands in it.
  std::span<const std::int64_t> choice() const noexcept;
  std::span<const std::int64_t> place() const noexcept;

  // Whether rows need not travel, as there is one rank: then the send buffer is in the order of
  // computing.
  bool is_local() const noexcept;

  // How many rows go where: what a builder (builder.h) makes a program from.
  RankRows rows() const;
  // Of comm's all_to_all_v that carries them.
  std::string algorithm() const;

  // Makes the rows of a chunk that are to be sent; chunks ascending. `scale` [tokens * top_k]
  // multiplies rows by choice.
  struct Tokens {
    std::span<const float> rows;                    // [tokens, columns], until all are dispatched
    std::optional<std::span<const float>> scale{};  // given on all ranks, or on none
    std::size_t columns = 1;
  };
  void pack_dispatch(int chunk, const Tokens& tokens, Workers& workers);
  // Posts the dispatch of what is packed; chunks ascending.
  [[nodiscard]] Request dispatch(int chunk);
  // Its rows, in the order of computing, once the dispatches of this chunk and those before are
  // complete: overwrites those of the chunk in `out` [computed_rows, columns].
  void unpack_dispatch(int chunk, std::span<float> out, Workers& workers);
  // Makes the rows of the way back of what was computed, `in` [computed_rows, columns], which must
  // stay until combined() is no longer wanted; chunks ascending. From chunk 0 on what combined()
  // told last is no more.
  void pack_combine(int chunk, std::span<const float> in, Workers& workers);
  [[nodiscard]] Request combine(int chunk);
  // The rows as they were sent, [sent_rows, columns], in order of place(), once all combines are
  // complete.
  std::span<const float> combined() const;

  const ExchangeCounters& counters() const noexcept;
  // What rows are before they are written, for tests.
  void fill(Fill fill) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley::moe
