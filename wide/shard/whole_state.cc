#include "wide/shard/whole_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/error.h"

namespace motley::wide {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // floats that a worker sends at a time

// `out` of this rank goes to `to`, which has room for it in `in`; counts are of each member's.
void send_to(Communicator& comm, const Group& group, std::size_t to, std::span<const float> out,
             std::span<float> in, std::span<const std::size_t> in_counts) {
  const auto members = static_cast<std::size_t>(group.size());
  std::vector<std::size_t> sent(members), coming(members);
  sent[to] = out.size();
  if (group.index_of(comm.rank()) == static_cast<int>(to))
    std::copy(in_counts.begin(), in_counts.end(), coming.begin());
  comm.all_to_all_v({.data = out, .counts = sent}, {.data = in, .counts = coming},
                    {.group = &group})
      .wait();
}

// A part of every slot, `unit` floats: the linear weight, or the factors.
struct Part {
  std::size_t unit;
  std::size_t (Layout::*at)(std::size_t slot) const noexcept;
};

class Collector {
 public:
  Collector(Communicator& comm, const Group& group, const ShardMap& map, const Shards& shards,
            const Model::PutFloats& put)
      : comm_(comm), group_(group), map_(map), shards_(shards), put_(put) {
    for (int shard = 0; shard < map.shards(); ++shard)
      givers_.push_back(static_cast<std::size_t>(group.index_of(map.keepers(shard).front())));
  }

  void collect(const Part& part) {
    if (part.unit == 0) return;
    const std::uint64_t cold = map_.slots_of(0);  // the longest
    const std::uint64_t places = std::max<std::uint64_t>(kPiece / part.unit, 1);
    for (std::uint64_t first = 0; first < cold; first += places)
      collect(part, first, std::min(places, cold - first));
  }

 private:
  // Slots of a shard among places [first, first + n).
  std::uint64_t many(int shard, std::uint64_t first, std::uint64_t n) const {
    const std::uint64_t all = map_.slots_of(shard);
    return all <= first ? 0 : std::min(n, all - first);
  }

  void collect(const Part& part, std::uint64_t first, std::uint64_t n) {
    const int self = group_.index_of(comm_.rank());
    std::vector<float> out;
    std::vector<std::size_t> counts(static_cast<std::size_t>(group_.size()));
    for (int shard = 0; shard < map_.shards(); ++shard) {
      const std::size_t giver = givers_[static_cast<std::size_t>(shard)];
      counts[giver] += many(shard, first, n) * part.unit;
      if (giver != static_cast<std::size_t>(self)) continue;
      const Layout& layout = shards_.layout(shard);
      for (std::uint64_t place = first; place < first + many(shard, first, n); ++place) {
        const float* const from = shards_.state(shard).data() + (layout.*part.at)(place);
        out.insert(out.end(), from, from + part.unit);
      }
    }
    std::size_t all = 0;
    for (const std::size_t count : counts) all += count;
    std::vector<float> in(self == 0 ? all : 0);
    send_to(comm_, group_, 0, out, in, counts);
    if (self == 0) put_in_order(part, first, n, in, counts);
  }

  void put_in_order(const Part& part, std::uint64_t first, std::uint64_t n,
                    std::span<const float> in, std::span<const std::size_t> counts) {
    std::vector<std::size_t> of_member(counts.size());  // where its block begins
    for (std::size_t m = 1; m < counts.size(); ++m) of_member[m] = of_member[m - 1] + counts[m - 1];
    std::vector<std::size_t> of_shard;
    for (int shard = 0; shard < map_.shards(); ++shard) {
      std::size_t& at = of_member[givers_[static_cast<std::size_t>(shard)]];
      of_shard.push_back(at);
      at += many(shard, first, n) * part.unit;
    }
    std::vector<float> ordered;
    ordered.reserve(in.size());
    for (std::uint64_t place = 0; place < n; ++place) {
      for (int shard = 0; shard < map_.shards(); ++shard) {
        if (place >= many(shard, first, n)) continue;
        const auto from = in.subspan(of_shard[static_cast<std::size_t>(shard)] + place * part.unit);
        ordered.insert(ordered.end(), from.begin(),
                       from.begin() + static_cast<std::ptrdiff_t>(part.unit));
      }
    }
    put_(ordered);
  }

  Communicator& comm_;
  const Group& group_;
  const ShardMap& map_;
  const Shards& shards_;
  const Model::PutFloats& put_;
  std::vector<std::size_t> givers_;  // of each shard
};

// Which shards each member has, one after the other.
std::vector<std::int8_t> gather_kept(Communicator& comm, const Group& group, const ShardMap& map,
                                     const Shards& shards) {
  std::vector<std::int8_t> own;
  for (int shard = 0; shard < map.shards(); ++shard) own.push_back(shards.keeps(shard) ? 1 : 0);
  std::vector<std::int8_t> all(own.size() * static_cast<std::size_t>(group.size()));
  comm.all_gather(own, all, {.group = &group}).wait();
  return all;
}

struct Way {
  int from, to;  // ranks
};
// `data` of `from` comes to `to`, which gets it returned; others get nothing.
Floats send_floats(Communicator& comm, const Group& group, const Way& way,
                   std::span<const float> data, std::size_t floats) {
  Floats received(comm.rank() == way.to ? floats : 0);
  const auto receiver = static_cast<std::size_t>(group.index_of(way.to));
  for (std::size_t at = 0; at < floats; at += kPiece) {
    const std::size_t n = std::min(kPiece, floats - at);
    std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()));
    counts[static_cast<std::size_t>(group.index_of(way.from))] = n;
    const auto part = [&](auto all, int rank) {
      return comm.rank() == rank ? all.subspan(at, n) : all.first(0);
    };
    send_to(comm, group, receiver, part(data, way.from), part(std::span(received), way.to), counts);
  }
  return received;
}

void send_shard(Communicator& comm, const Group& group, Shards& shards, int shard, const Way& way,
                Remembered remembered) {
  const std::size_t floats = shards.floats_of(shard);
  const bool gives = comm.rank() == way.from;
  const auto given = [&](auto get) { return gives ? get() : std::span<const float>(); };
  Floats state = send_floats(
      comm, group, way, given([&] { return std::span<const float>(shards.state(shard)); }), floats);
  Floats best;
  if (remembered == Remembered::kStates) {
    best = send_floats(comm, group, way,
                       given([&] { return std::span<const float>(shards.remembered(shard)); }),
                       floats);
  }
  if (comm.rank() != way.to) return;
  shards.add(shard);
  std::copy(state.begin(), state.end(), shards.state(shard).begin());
  shards.remembered(shard) = std::move(best);
}

}  // namespace

void collect_state(Communicator& comm, const Group& group, const ShardMap& map,
                   const Layout& layout, const Shards& shards, const HotBlock& hot,
                   const Model::PutFloats& put) {
  const bool first = group.index_of(comm.rank()) == 0;
  const Layout& of_hot = hot.layout();
  const auto put_hot = [&](std::size_t at, std::size_t n) {
    if (first) put(hot.state().subspan(at, n));
  };
  Collector collector(comm, group, map, shards, put);
  put_hot(0, of_hot.linear(of_hot.slots));  // and what all samples share
  collector.collect({layout.linear_stride(), &Layout::linear});
  const std::vector<float> gap(layout.factors_begin() - layout.linear(layout.slots));
  if (first) put(gap);
  put_hot(of_hot.factors_begin(), of_hot.slots * of_hot.factors_stride());
  collector.collect({layout.factors_stride(), &Layout::factors_of});
}

void hand_over(Communicator& comm, const Group& group, const ShardMap& map, Shards& shards,
               const HandOver& how) {
  const std::vector<std::int8_t> kept = gather_kept(comm, group, map, shards);
  const auto keeps = [&](int rank, int shard) {
    return kept[static_cast<std::size_t>(group.index_of(rank) * map.shards() + shard)] != 0;
  };
  for (int shard = 0; shard < map.shards(); ++shard) {
    const std::vector<int> keepers = map.keepers(shard);
    const auto from = std::ranges::find_if(keepers, [&](int r) { return keeps(r, shard); });
    if (from == keepers.end()) {
      throw Error(ErrorCode::kPeerLost,
                  fmt::format("train: all workers that kept shard {} of {} have died. Train anew, "
                              "with more copies of shards",
                              shard, map.shards()));
    }
    for (const int to : keepers) {
      if (to != *from && (!keeps(to, shard) || how.copies == Copies::kMayLag))
        send_shard(comm, group, shards, shard, {.from = *from, .to = to}, how.remembered);
    }
  }
}

}  // namespace motley::wide
