// moe/exchange/impl.h: what an Exchange knows and holds.
#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include "moe/exchange.h"
#include "moe/exchange/per_host.h"
#include "moe/exchange/route.h"
#include "moe/rows.h"
#include "moe/scratch.h"

namespace motley::moe {

struct Exchange::Impl {
  Communicator* comm;
  Placement placement;
  ExchangeOptions options;
  exchange::Hosts hosts;
  ExchangeCounters counters{};
  Fill fill = Fill::kAsItWas;

  // Of the current plan.
  const Plan* plan = nullptr;
  exchange::CountMatrix counts{};
  exchange::Route route{};
  exchange::Crossing crossing{};
  exchange::Forwarding forwarding{};
  std::vector<std::int32_t> notes{};    // as a forwarder: Crossing::token_of of every source
  std::vector<std::int64_t> choice{};   // by place in the send buffer
  std::vector<std::int64_t> token{};    // the same, over top_k
  std::vector<std::int64_t> place{};    // by the plan's row
  std::vector<std::int64_t> arrival{};  // by place in computing: where in `received`

  Scratch send{}, received{}, back{}, returned{};
  Scratch leaving{}, crossed{};       // kPerHost: distinct rows to and from other hosts
  std::vector<float> scale_of_row{};  // of the send buffer; kPerHost: in the order of computing
  Exchange::Tokens tokens{};          // of the dispatch under way
  std::size_t columns = 0;
  std::span<const float> local{};  // where rows need not travel: what was computed

  bool is_local() const { return placement.ranks() == 1; }
  bool per_host() const { return options.kind == ExchangeKind::kPerHost && !is_local(); }
  std::string algorithm() const;
  CallOptions call() const { return {.timeout = options.timeout, .algorithm = algorithm()}; }

  void agree(const ExchangeInput& input);
  std::exception_ptr error_of(const ExchangeInput& input) const;  // of this rank
  std::uint64_t options_agreement(const ExchangeInput& input) const;
  struct Told {
    std::vector<std::int64_t> all;  // [ranks, words]
    std::size_t words = 0;
    std::int64_t of(std::size_t rank, std::size_t word) const { return all[rank * words + word]; }
  };
  void check_alike(const Told& told, std::exception_ptr error) const;
  void check_sizes(const Told& told) const;
  void lay_out();
  void exchange_notes();
  void begin_dispatch(const Exchange::Tokens& with);
  // kPerHost, all chunks at once.
  void pack_crossing(Workers& workers);
  Request dispatch_per_host();
  void cross();
  Request hand_on();
  // Scales do not travel with rows, of which there is one for several choices.
  void exchange_scales();
  std::size_t rows_between(std::size_t from, std::size_t to) const {
    return exchange::rows_between(counts, placement, {from, to});
  }
  // Counts an exchange of `rows` [ranks] of `columns` numbers.
  void count(const std::vector<std::size_t>& rows);
  // Rows from `in` to `out`, with counts of rows.
  Request exchange_rows(std::span<const float> in, const std::vector<std::size_t>& in_rows,
                        std::span<float> out, const std::vector<std::size_t>& out_rows,
                        std::size_t width, const CallOptions& options) const;
};

}  // namespace motley::moe
