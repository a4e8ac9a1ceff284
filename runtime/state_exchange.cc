#include "runtime/state_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/error.h"
#include "runtime/numeric/second_moment.h"

namespace motley::runtime {
namespace {

// FNV-1a, the same on all machines.
std::int64_t hash(const std::string& text) noexcept {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char each : text) value = (value ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  return static_cast<std::int64_t>(value);
}

std::vector<std::int64_t> gathered(Communicator& comm, const std::vector<std::int64_t>& mine,
                                   int members, const CallOptions& options) {
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(members));
  comm.all_gather(mine, all, options).wait();
  return all;
}

// Every member has the same `hashes`, of `items` items each, and so comes to the same end.
[[noreturn]] void throw_mismatch(const State& state, const Group& group, std::size_t items,
                                 const std::vector<std::int64_t>& hashes) {
  for (std::size_t item = 0; item < items; ++item) {
    for (int member = 1; member < group.size(); ++member) {
      if (hashes[static_cast<std::size_t>(member) * items + item] == hashes[item]) continue;
      throw Error(
          ErrorCode::kMismatch,
          fmt::format("state: item {} differs between rank {} and rank {}; here it is {}. "
                      "List the same names, types, shapes and policies in the same order.",
                      item, group.rank_at(0), group.rank_at(member), to_text(state.items()[item])),
          {group.rank_at(0), group.rank_at(member)});
    }
  }
  throw Error(ErrorCode::kMismatch,
              fmt::format("state: {} items here, {} on another worker. List the same on all.",
                          state.items().size(), items));
}

}  // namespace

void check_alike(Communicator& comm, const State& state, const CallOptions& options) {
  const Group& group = options.group != nullptr ? *options.group : comm.world();
  std::vector<std::int64_t> hashes;
  std::string all;
  for (const StateItem& item : state.items()) {
    hashes.push_back(hash(to_text(item)));
    all += to_text(item) + "\n";
  }
  const auto own = static_cast<std::int64_t>(hashes.size());
  const std::vector<std::int64_t> totals = gathered(comm, {own, hash(all)}, group.size(), options);
  bool alike = true;
  std::int64_t least = own;
  for (std::size_t i = 0; i < totals.size(); i += 2) {
    alike = alike && totals[i] == totals[0] && totals[i + 1] == totals[1];
    least = std::min(least, totals[i]);
  }
  if (alike) return;
  hashes.resize(static_cast<std::size_t>(least));
  throw_mismatch(state, group, hashes.size(), gathered(comm, hashes, group.size(), options));
}

void average(Communicator& comm, const State& state, const CallOptions& options) {
  const auto square_variances = [&state](int sign) {
    for (const StateItem& item : state.items()) {
      if (!item.mean.empty()) add_squares(item.data, state.find(item.mean).data, sign);
    }
  };
  square_variances(1);
  std::vector<Request> requests;
  for (const StateItem& item : state.items()) {
    if (!is_shared(item.policy)) continue;
    const bool mean = item.policy == StatePolicy::kAverage;
    requests.push_back(
        comm.all_reduce(item.data, mean ? ReduceOp::kAverage : ReduceOp::kMax, options));
  }
  for (Request& request : requests) request.wait();
  square_variances(-1);
}

void hand_over(Communicator& comm, const State& state, int from, const CallOptions& options) {
  check_alike(comm, state, options);
  std::vector<Request> requests;
  for (const StateItem& item : state.items()) {
    if (is_shared(item.policy)) requests.push_back(comm.broadcast(item.data, from, options));
  }
  for (Request& request : requests) request.wait();
  if (comm.rank() == from) return;
  for (const StateItem& item : state.items()) {
    if (item.policy != StatePolicy::kSum || item.data.count == 0) continue;
    std::memset(item.data.data, 0, item.data.size_bytes());
  }
}

}  // namespace motley::runtime
