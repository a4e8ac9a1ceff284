#include "moe/sharded_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/error.h"
#include "moe/expert_shards.h"

namespace motley::moe {
namespace {

std::span<const PhysicalExpert> experts_here(const Placement& placement, const Communicator& comm) {
  return placement.of_rank(comm.rank());
}

ExpertShard part_of(const PhysicalExpert& physical) { return {physical.shard, physical.shards}; }

}  // namespace

ShardedExperts::ShardedExperts(Communicator& comm, const Placement& placement,
                               const ExpertShape& whole, ShardStates states)
    : comm_(&comm),
      placement_(placement),
      shape_(whole),
      part_(shard_of(whole, placement.most_shards())),
      states_(std::move(states)) {
  check(states_);
  const bool has_shards = placement_.most_shards() > 1;
  for (const runtime::StateItem& item : states_.example.items()) {
    runtime::StateItem one = item;
    one.policy = runtime::StatePolicy::kOwned;
    one.data = View(nullptr, 0, item.data.dtype);
    if (is_cut(item)) {
      one.shape = {shape_.slot_count()};
      ++cut_items_;
    }
    example_.add(std::move(one));
  }
  const auto experts = experts_here(placement_, comm);
  for (std::size_t slot = 0; slot < experts.size(); ++slot) {
    const std::int32_t expert = experts[slot].expert;
    const auto known = std::ranges::find(wholes_, expert, &Whole::expert);
    if (known != wholes_.end()) {
      known->slots.push_back(slot);
      continue;
    }
    Whole& one = wholes_.emplace_back(Whole{expert, {slot}, {}, {}});
    if (has_shards) one.values.assign(cut_items_, std::vector<float>(shape_.slot_count()));
    std::size_t next = 0;
    for (const runtime::StateItem& item : states_.here[slot].items()) {
      runtime::StateItem listed = item;
      if (has_shards && is_cut(item)) {
        listed.shape = {shape_.slot_count()};
        listed.data = View(one.values[next++]);
      }
      one.items.add(std::move(listed));
    }
  }
}

bool ShardedExperts::is_cut(const runtime::StateItem& item) const {
  return item.data.dtype == DType::kFloat32 &&
         item.shape == std::vector<std::size_t>{part_.slot_count()};
}

void ShardedExperts::check(const ShardStates& states) const {
  for (const PhysicalExpert& p : placement_.physical()) {
    if (p.shards == placement_.most_shards()) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe checkpoint: replica {} of expert {} has {} shards, another {}. "
                            "All must have as many.",
                            p.replica, p.expert, p.shards, placement_.most_shards()));
  }
  if (states.here.size() != experts_here(placement_, *comm_).size()) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("moe checkpoint: {} states for the {} physical experts of rank {}. "
                    "Pass one for each.",
                    states.here.size(), experts_here(placement_, *comm_).size(), comm_->rank()));
  }
  for (std::size_t slot = 0; slot < states.here.size(); ++slot) {
    if (alike(states.here[slot], states.example)) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe checkpoint: the {} items of physical expert {} of rank {} are not "
                            "the {} of the example. List the same names, shapes and types.",
                            states.here[slot].items().size(), slot, comm_->rank(),
                            states.example.items().size()));
  }
}

void ShardedExperts::list(runtime::State& state, const std::string& prefix) const {
  std::vector<ExpertState> here;
  for (const Whole& one : wholes_) here.push_back({one.expert, one.items});
  list_experts(state, {prefix, placement_.experts(), example_}, here);
}

bool ShardedExperts::holds(int rank, std::int32_t expert) const {
  return std::ranges::any_of(placement_.of_rank(rank),
                             [&](const PhysicalExpert& p) { return p.expert == expert; });
}

template <class Body>
void ShardedExperts::each_sent(int from, int to, const Body& body) const {
  for (std::size_t slot = 0; slot < placement_.of_rank(from).size(); ++slot) {
    const PhysicalExpert& physical = placement_.of_rank(from)[slot];
    if (physical.replica == 0 && holds(to, physical.expert)) body(slot, physical);
  }
}

std::vector<float> ShardedExperts::pack(std::vector<std::size_t>& counts) const {
  std::vector<float> parts;
  for (int to = 0; to < comm_->size(); ++to) {
    const std::size_t before = parts.size();
    each_sent(comm_->rank(), to, [&](std::size_t slot, const PhysicalExpert&) {
      for (const runtime::StateItem& item : states_.here[slot].items()) {
        if (!is_cut(item)) continue;
        const auto values = item.data.as<const float>();
        parts.insert(parts.end(), values.begin(), values.end());
      }
    });
    counts.push_back(parts.size() - before);
  }
  return parts;
}

void ShardedExperts::unpack(std::span<const float> parts) {
  for (int from = 0; from < comm_->size(); ++from) {
    each_sent(from, comm_->rank(), [&](std::size_t, const PhysicalExpert& physical) {
      Whole& one = *std::ranges::find(wholes_, physical.expert, &Whole::expert);
      for (std::vector<float>& values : one.values) {
        paste_shard(shape_, part_of(physical), parts.first(part_.slot_count()), values);
        parts = parts.subspan(part_.slot_count());
      }
    });
  }
}

void ShardedExperts::collect(Duration timeout) {
  if (placement_.most_shards() == 1) return;
  std::vector<std::size_t> out, in;
  const std::vector<float> ours = pack(out);
  for (int from = 0; from < comm_->size(); ++from) {
    std::size_t count = 0;
    each_sent(from, comm_->rank(),
              [&](auto, const auto&) { count += cut_items_ * part_.slot_count(); });
    in.push_back(count);
  }
  std::size_t all = 0;
  for (const std::size_t count : in) all += count;
  std::vector<float> theirs(all);
  comm_->all_to_all_v({ours, out}, {theirs, in}, {.timeout = timeout}).wait();
  unpack(theirs);
}

void ShardedExperts::spread() {
  const auto experts = experts_here(placement_, *comm_);
  for (const Whole& one : wholes_) {
    for (const std::size_t slot : one.slots) {
      std::size_t next = 0;
      const auto& items = states_.here[slot].items();
      for (std::size_t i = 0; i < items.size(); ++i) {
        const runtime::StateItem& whole = one.items.items()[i];
        if (whole.data.data == items[i].data.data) continue;  // it was loaded there
        if (is_cut(items[i]) && !one.values.empty()) {
          cut_shard(shape_, part_of(experts[slot]), one.values[next++], items[i].data.as<float>());
        } else {
          std::memcpy(items[i].data.data, whole.data.data, whole.data.size_bytes());
        }
      }
    }
  }
}

}  // namespace motley::moe
