#include "wide/shard/exchange.h"

#include <fmt/format.h>

#include <limits>

#include "comm/error.h"

namespace motley::wide {
namespace {

// Of a set of ranks, the same for all who know of the same deaths. Two for each set.
GroupTag tag_of(const std::vector<int>& ranks, std::uint64_t which) {
  std::uint64_t hash = 0x9e3779b97f4a7c15u + which;
  for (const int rank : ranks) {
    hash = (hash ^ static_cast<std::uint64_t>(rank + 1)) * 0x100000001b3u;
  }
  return {.id = (hash % GroupTag::kPairBit) | 1};
}

std::size_t total(std::span<const std::size_t> counts) {
  std::size_t sum = 0;
  for (const std::size_t n : counts) sum += n;
  return sum;
}

std::vector<std::size_t> times(std::span<const std::size_t> counts, std::size_t unit) {
  std::vector<std::size_t> out;
  for (const std::size_t n : counts) out.push_back(n * unit);
  return out;
}

// How many of each member's flags, in the order of members, are `value`.
std::vector<std::size_t> counts_of(const std::vector<bool>& flags,
                                   std::span<const std::size_t> counts, bool value) {
  std::vector<std::size_t> out;
  std::size_t at = 0;
  for (const std::size_t n : counts) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < n; ++i) found += flags[at++] == value ? 1 : 0;
    out.push_back(found);
  }
  return out;
}

}  // namespace

std::int16_t entries_sent(std::uint32_t entries) {
  if (entries > std::numeric_limits<std::uint16_t>::max()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("train: a feature has {} entries in a batch, but can have {} where it "
                            "is sharded. Use smaller batches",
                            entries, std::numeric_limits<std::uint16_t>::max()));
  }
  return static_cast<std::int16_t>(static_cast<std::uint16_t>(entries));
}

Exchange::Exchange(Communicator& comm, const ShardMap& map, const Layout& layout)
    : comm_(comm), map_(map), floats_(floats_sent(layout)) {
  regroup();
}

void Exchange::regroup() {
  steps_.emplace(map_.alive(), tag_of(map_.alive(), 0));
  pulls_.emplace(map_.alive(), tag_of(map_.alive(), 1));
}

template <class T>
std::vector<T> Exchange::swap(const std::vector<T>& out, std::span<const std::size_t> out_counts,
                              std::span<const std::size_t> in_counts, std::size_t unit,
                              const Group& group, std::uint64_t* bytes) {
  const std::vector<std::size_t> sent = times(out_counts, unit), coming = times(in_counts, unit);
  std::vector<T> in(total(coming));
  comm_
      .all_to_all_v({.data = out, .counts = sent}, {.data = in, .counts = coming},
                    {.group = &group})
      .wait();
  const auto self = static_cast<std::size_t>(group.index_of(comm_.rank()));
  *bytes += (out.size() - sent[self]) * sizeof(T);
  return in;
}

void Exchange::order_keys(Step& step) const {
  std::vector<std::size_t> givers;  // of each shard, as members
  for (int shard = 0; shard < map_.shards(); ++shard)
    givers.push_back(static_cast<std::size_t>(steps_->index_of(map_.keepers(shard).front())));
  std::vector<std::vector<std::uint32_t>> asked(map_.alive().size());
  for (std::uint32_t i = 0; i < step.batch.slots.size(); ++i) {
    const std::uint32_t slot = step.batch.slots[i];
    if (slot >= map_.hot())
      asked[givers[static_cast<std::size_t>(map_.shard_of(slot))]].push_back(i);
  }
  step.asked.clear();
  step.asked_counts.clear();
  for (const std::vector<std::uint32_t>& of_member : asked) {
    step.asked.insert(step.asked.end(), of_member.begin(), of_member.end());
    step.asked_counts.push_back(of_member.size());
  }
}

std::vector<std::size_t> Exchange::swap_counts(std::span<const std::size_t> counts,
                                               const Group& group, std::uint64_t* bytes) {
  std::vector<std::int32_t> out, in(counts.size());
  for (const std::size_t n : counts) out.push_back(static_cast<std::int32_t>(n));
  comm_.all_to_all(out, in, {.group = &group}).wait();
  *bytes += (counts.size() - 1) * sizeof(std::int32_t);
  return {in.begin(), in.end()};
}

void Exchange::send_keys(Step& step) {
  order_keys(step);
  step.heard_counts = swap_counts(step.asked_counts, *pulls_, &traffic_.keys);
  std::vector<std::int32_t> keys;
  std::vector<std::int16_t> entries;
  for (const std::uint32_t i : step.asked) {
    keys.push_back(static_cast<std::int32_t>(step.batch.slots[i]));
    entries.push_back(entries_sent(step.batch.entries[i]));
  }
  step.heard = swap(keys, step.asked_counts, step.heard_counts, 1, *pulls_, &traffic_.keys);
  step.heard_entries =
      swap(entries, step.asked_counts, step.heard_counts, 1, *pulls_, &traffic_.keys);
  step.weights.resize(step.batch.slots.size() * floats_);
}

// A bit for each weight.
void Exchange::send_flags(Step& step) {
  const auto bytes_for = [](std::span<const std::size_t> counts) {
    std::vector<std::size_t> bytes;
    for (const std::size_t n : counts) bytes.push_back((n + 7) / 8);
    return bytes;
  };
  const auto out_bytes = bytes_for(step.heard_counts), in_bytes = bytes_for(step.asked_counts);
  std::vector<std::int8_t> out(total(out_bytes));
  const auto for_bits = [](std::span<const std::size_t> counts, auto body) {
    std::size_t first = 0, flag = 0;
    for (const std::size_t n : counts) {
      for (std::size_t i = 0; i < n; ++i) body(flag++, first + i / 8, 1 << (i % 8));
      first += (n + 7) / 8;
    }
  };
  for_bits(step.heard_counts, [&](std::size_t flag, std::size_t byte, int bit) {
    if (step.late_heard[flag]) out[byte] = static_cast<std::int8_t>(out[byte] | bit);
  });
  const std::vector<std::int8_t> in = swap(out, out_bytes, in_bytes, 1, *pulls_, &traffic_.keys);
  step.late.assign(total(step.asked_counts), false);
  for_bits(step.asked_counts, [&](std::size_t flag, std::size_t byte, int bit) {
    step.late[flag] = (in[byte] & bit) != 0;
  });
}

void Exchange::send_weights(Step& step, const Shards& shards, bool late, const Group& group) {
  std::vector<float> out;
  for (std::size_t i = 0; i < step.heard.size(); ++i) {
    if (step.late_heard[i] != late) continue;
    out.resize(out.size() + floats_);
    shards.read(static_cast<std::uint64_t>(step.heard[i]), out.data() + out.size() - floats_);
  }
  std::uint64_t bytes = 0;
  const std::vector<float> in =
      swap(out, counts_of(step.late_heard, step.heard_counts, late),
           counts_of(step.late, step.asked_counts, late), floats_, group, &bytes);
  (late ? traffic_.late_weights : traffic_.early_weights) += bytes;
  const float* from = in.data();
  for (std::size_t i = 0; i < step.asked.size(); ++i) {
    if (step.late[i] != late) continue;
    std::copy_n(from, floats_, step.weights.data() + step.asked[i] * floats_);
    from += floats_;
  }
}

void Exchange::send_gradients(Step& step) {
  std::vector<float> out(step.asked.size() * floats_);
  for (std::size_t i = 0; i < step.asked.size(); ++i)
    std::copy_n(step.gradients.data() + step.asked[i] * floats_, floats_, out.data() + i * floats_);
  step.received =
      swap(out, step.asked_counts, step.heard_counts, floats_, *steps_, &traffic_.gradients);
}

std::vector<Pushed> Exchange::pushed(const Step& step) const {
  std::vector<Pushed> from;
  std::size_t begin = 0;
  for (const std::size_t n : step.heard_counts) {
    from.push_back({.slots = std::span(step.heard).subspan(begin, n),
                    .entries = std::span(step.heard_entries).subspan(begin, n),
                    .gradients = step.received.data() + begin * floats_});
    begin += n;
  }
  return from;
}

void Exchange::send_sums(Shards& shards) {
  if (!map_.has_copies()) return;
  const std::vector<int>& alive = map_.alive();
  SlotSums out;
  std::vector<std::size_t> sent, heads, coming_heads;
  for (const int rank : alive) {
    const std::vector<int> given = map_.copied(comm_.rank(), rank);
    const std::size_t before = out.rows.size();
    for (const int shard : given) shards.put_sums(shard, out);
    sent.push_back((out.rows.size() - before) / (floats_ + 1));
    heads.push_back(sent.back() + given.size());
  }
  const std::vector<std::size_t> coming = swap_counts(sent, *steps_, &traffic_.copies);
  for (std::size_t m = 0; m < alive.size(); ++m)
    coming_heads.push_back(coming[m] + map_.copied(alive[m], comm_.rank()).size());
  SlotSums in;
  in.places = swap(out.places, heads, coming_heads, 1, *steps_, &traffic_.copies);
  in.rows = swap(out.rows, sent, coming, floats_ + 1, *steps_, &traffic_.copies);
  SlotSumsReader reader{in};
  for (const int rank : alive) {
    for (const int shard : map_.copied(rank, comm_.rank())) shards.take_sums(shard, reader);
  }
}

void Exchange::add_up(std::span<float> gradients) {
  comm_.all_reduce(gradients, ReduceOp::kSum, {.group = &*steps_, .deterministic = true}).wait();
  traffic_.hot += gradients.size_bytes();
}

}  // namespace motley::wide
