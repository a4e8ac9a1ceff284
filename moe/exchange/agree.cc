// The count exchange of exchange.h: what every rank sends to whom, and whether all may go on.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "comm/error.h"
#include "moe/digest.h"
#include "moe/exchange/impl.h"

namespace motley::moe {
namespace {

// What a rank tells: what is wrong there, its tokens, what plans and options must agree on; then
// its rows for each physical expert, then its distinct tokens for each host.
constexpr std::size_t kError = 0, kTokens = 1, kAgreement = 2, kOptions = 3, kCounts = 4;
constexpr std::int64_t kNoPlan = 1, kForeignPlan = 2;  // of kError

[[noreturn]] void stop(ErrorCode code, std::size_t rank, const std::string& what) {
  throw Error(code, "moe exchange: " + what, {static_cast<int>(rank)});
}

}  // namespace

std::exception_ptr Exchange::Impl::error_of(const ExchangeInput& input) const {
  if (input.plan == nullptr) return input.error;
  const Plan& it = *input.plan;
  const std::size_t experts = placement.physical().size();
  if (it.epoch == placement.epoch() && it.rank == comm->rank() && it.send_count.size() == experts &&
      it.send_first.size() == experts + 1) {
    return {};
  }
  return std::make_exception_ptr(
      Error(ErrorCode::kMismatch,
            fmt::format("moe exchange: a plan of epoch {}, rank {} and {} physical experts for a "
                        "placement of epoch {} and {}, on rank {}. Make it with this placement.",
                        it.epoch, it.rank, it.send_count.size(), placement.epoch(), experts,
                        comm->rank()),
            {comm->rank()}));
}

std::uint64_t Exchange::Impl::options_agreement(const ExchangeInput& input) const {
  return Digest()
      .add(static_cast<int>(options.kind))
      .add(options.degree)
      .add(options.piece_rows)
      .add(options.most_tokens)
      .add(options.most_rows)
      .add(input.agreement)
      .value();
}

void Exchange::Impl::agree(const ExchangeInput& input) {
  const std::size_t experts = placement.physical().size();
  const std::size_t words = kCounts + experts + hosts.ranks_of.size();
  const std::exception_ptr error = error_of(input);
  std::vector<std::int64_t> mine(words, 0);
  mine[kTokens] = static_cast<std::int64_t>(input.tokens);
  mine[kOptions] = std::bit_cast<std::int64_t>(options_agreement(input));
  if (input.plan == nullptr || error) {
    mine[kError] = input.plan == nullptr ? kNoPlan : kForeignPlan;
  } else {
    mine[kAgreement] = std::bit_cast<std::int64_t>(input.plan->agreement);
    std::copy(input.plan->send_count.begin(), input.plan->send_count.end(), mine.begin() + kCounts);
    crossing =
        per_host() ? exchange::make_crossing(*input.plan, placement, hosts) : exchange::Crossing{};
    for (std::size_t host = 0; host < crossing.tokens.size(); ++host) {
      mine[kCounts + experts + host] = static_cast<std::int64_t>(crossing.tokens[host].size());
    }
  }
  const auto ranks = static_cast<std::size_t>(comm->size());
  Told told{std::vector<std::int64_t>(ranks * words), words};
  ++counters.count_exchanges;
  comm->all_gather(mine, told.all, {.timeout = options.timeout}).wait();
  check_alike(told, error);
  check_sizes(told);

  counts = {{}, experts};
  std::vector<std::int64_t> distinct;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto row = told.all.begin() + static_cast<std::ptrdiff_t>(r * words + kCounts);
    const auto end = row + static_cast<std::ptrdiff_t>(experts);
    counts.count.insert(counts.count.end(), row, end);
    distinct.insert(distinct.end(), end, row + static_cast<std::ptrdiff_t>(words - kCounts));
  }
  route =
      exchange::make_route(counts, placement, comm->rank(), {options.degree, options.piece_rows});
  if (per_host()) {
    forwarding = exchange::make_forwarding(counts, distinct, placement, hosts, comm->rank());
  }
}

void Exchange::Impl::check_alike(const Told& told, std::exception_ptr error) const {
  const auto ranks = static_cast<std::size_t>(comm->size());
  for (std::size_t r = 1; r < ranks; ++r) {
    if (told.of(r, kOptions) == told.of(0, kOptions)) continue;
    stop(ErrorCode::kMismatch, r,
         fmt::format("ranks 0 and {} have other options: {:x} and {:x}. All ranks must have one "
                     "kind, degree, piece_rows, most_tokens, most_rows and, in a layer, shape, "
                     "gradient_scale and first_group.",
                     r, std::bit_cast<std::uint64_t>(told.of(0, kOptions)),
                     std::bit_cast<std::uint64_t>(told.of(r, kOptions))));
  }
  for (std::size_t r = 0; r < ranks && options.most_tokens != 0; ++r) {
    if (static_cast<std::size_t>(told.of(r, kTokens)) <= options.most_tokens) continue;
    stop(ErrorCode::kInvalid, r,
         fmt::format("rank {} has {} tokens, most_tokens is {}. Split the batch, or raise it.", r,
                     told.of(r, kTokens), options.most_tokens));
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    if (told.of(r, kError) == 0) continue;
    if (error) std::rethrow_exception(error);
    const bool foreign = told.of(r, kError) == kForeignPlan;
    stop(foreign ? ErrorCode::kMismatch : ErrorCode::kInvalid, r,
         fmt::format("rank {} has {}, so no rank goes on. Its own error says why.", r,
                     foreign ? "a plan of another placement" : "no plan"));
  }
  for (std::size_t r = 1; r < ranks; ++r) {
    if (told.of(r, kAgreement) == told.of(0, kAgreement)) continue;
    stop(
        ErrorCode::kMismatch, r,
        fmt::format("the plans of ranks 0 and {} do not go together: {:x} and {:x}. All ranks must "
                    "have one placement, epoch, capacity rule, chooser, top_k and step.",
                    r, std::bit_cast<std::uint64_t>(told.of(0, kAgreement)),
                    std::bit_cast<std::uint64_t>(told.of(r, kAgreement))));
  }
}

void Exchange::Impl::check_sizes(const Told& told) const {
  const auto ranks = static_cast<std::size_t>(comm->size());
  for (std::size_t r = 0; r < ranks && options.most_rows != 0; ++r) {
    std::size_t rows = 0;
    for (int p = placement.first_of_rank(static_cast<int>(r));
         p < placement.first_of_rank(static_cast<int>(r) + 1); ++p) {
      for (std::size_t from = 0; from < ranks; ++from) {
        rows += static_cast<std::size_t>(told.of(from, kCounts + static_cast<std::size_t>(p)));
      }
    }
    if (rows <= options.most_rows) continue;
    stop(ErrorCode::kInvalid, r,
         fmt::format("rank {} would get {} rows, most_rows is {}. Lower the capacity factor, or "
                     "raise it.",
                     r, rows, options.most_rows));
  }
}

void Exchange::Impl::lay_out() {
  choice.clear();
  token.clear();
  const auto top_k = plan->top_k;
  const auto add = [&](std::int64_t row) {
    choice.push_back(plan->choice[static_cast<std::size_t>(row)]);
    token.push_back(choice.back() / top_k);
  };
  place = route.place;
  arrival = route.arrival;
  if (is_local()) {  // the send buffer is in the order of computing at once
    for (const std::int64_t at : route.arrival) {
      add(route.sent[static_cast<std::size_t>(at)]);
    }
    for (std::int64_t& at : place) at = route.computed[static_cast<std::size_t>(at)];
    return;
  }
  for (const std::int64_t row : route.sent) add(row);
  if (!per_host()) return;
  for (std::size_t i = 0; i < arrival.size(); ++i) {
    const exchange::Route::Source& source = route.source[i];
    arrival[i] = static_cast<std::int64_t>(forwarding.base[static_cast<std::size_t>(source.rank)] +
                                           source.row);
  }
  exchange_notes();
}

}  // namespace motley::moe
