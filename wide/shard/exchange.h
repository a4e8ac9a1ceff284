// wide/shard/exchange.h: what workers send each other in a step of sharded training.
//
//   keys      each asks the givers of its batch's slots, by number, with how many edges it has
//   weights   they answer: at once those that the step before does not change, the others when
//             they have changed
//   gradients each sends what its batch makes of these weights, in the order of the keys
//   sums      givers send what that adds up to, for each slot once, to those that keep copies
//
// Keys and weights of the next step go while this one computes, in a group of calls of their own.
//
// Bytes of a step, with f factors, for u distinct slots of a batch that lie elsewhere, of which v
// of a giver's shards are stepped, c keepers of a shard, h hot slots, and p workers; of a worker:
//   u (6 + 8 (f + 1))              a key, how many edges it has, weights and their gradients
//   u / 8, and 8 (p - 1) and less  bits and counts
//   (c - 1) v (8 + 4 (f + 1))      a place, how many edges it has, the sum of gradients
//   4 h (f + 2)                    of hot slots, before the all-reduce
// A copy has to be told each slot that changed and by how much: (c - 1) v (4 + 4 (f + 1)).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "wide/shard/batch_slots.h"
#include "wide/shard/shards.h"
#include "wide/sharded_run.h"

namespace motley::wide {

// A batch on its way, as one worker sees it. Members: the living workers, in the order of ranks.
struct Step {
  std::uint32_t number = 0;
  BatchSlots batch;
  std::vector<float> weights;  // [batch.slots][floats_sent()]; those of hot slots are not set

  // What this worker asks of each member, by number in batch.slots.
  std::vector<std::uint32_t> asked;
  std::vector<std::size_t> asked_counts;  // [members]
  // What each member asks of this worker, in the same order.
  std::vector<std::int32_t> heard;
  std::vector<std::int16_t> heard_entries;
  std::vector<std::size_t> heard_counts;  // [members]
  // For each weight that is asked for, from here and of here: whether it comes late.
  std::vector<bool> late, late_heard;

  std::vector<float> gradients;  // [batch.slots][floats_sent()]
  std::vector<float> received;   // [heard][floats_sent()]
};

// How many entries a slot has in a batch, as an unsigned number. Throws kInvalid if it has too
// many.
std::int16_t entries_sent(std::uint32_t entries);

class Exchange {
 public:
  // `map` must outlive it.
  Exchange(Communicator& comm, const ShardMap& map, const Layout& layout);

  // Among those that live by now; all of them call it.
  void regroup();
  const Group& group() const noexcept { return *steps_; }

  // What is to be asked of whom.
  void order_keys(Step& step) const;
  // Who gives the slots of step.batch is asked for them.
  void send_keys(Step& step);
  // Weights that come at once, where `is_late` does not hold for the slot.
  template <class IsLate>
  void send_early(Step& step, const Shards& shards, IsLate is_late) {
    mark_late(step, is_late);
    send_flags(step);
    send_weights(step, shards, false, *pulls_);
  }
  void send_late(Step& step, const Shards& shards) { send_weights(step, shards, true, *steps_); }
  void send_gradients(Step& step);
  // What gradients this worker was sent, by member.
  std::vector<Pushed> pushed(const Step& step) const;
  // What shards have added up comes to the workers that keep copies of them.
  void send_sums(Shards& shards);
  // Gradients of hot slots are added up.
  void add_up(std::span<float> gradients);

  const ShardTraffic& traffic() const noexcept { return traffic_; }

 private:
  template <class IsLate>
  void mark_late(Step& step, IsLate is_late) {
    step.late_heard.clear();
    for (const std::int32_t slot : step.heard)
      step.late_heard.push_back(is_late(static_cast<std::uint64_t>(slot)));
  }
  // counts[m] go to member m; returns what comes from each.
  std::vector<std::size_t> swap_counts(std::span<const std::size_t> counts, const Group& group,
                                       std::uint64_t* bytes);
  void send_flags(Step& step);
  void send_weights(Step& step, const Shards& shards, bool late, const Group& group);
  // Sends blocks of `unit` elements times out_counts; what comes is counted likewise. Counts bytes
  // that go to others in *bytes.
  template <class T>
  std::vector<T> swap(const std::vector<T>& out, std::span<const std::size_t> out_counts,
                      std::span<const std::size_t> in_counts, std::size_t unit, const Group& group,
                      std::uint64_t* bytes);

  Communicator& comm_;
  const ShardMap& map_;
  std::size_t floats_;                  // of a slot on its way
  std::optional<Group> steps_, pulls_;  // two, as both are used at once
  ShardTraffic traffic_;
};

}  // namespace motley::wide
