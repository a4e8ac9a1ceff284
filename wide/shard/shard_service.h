// wide/shard/shard_service.h: sharded training in which nobody waits for a slow worker: threads of
// each worker give out the weights of its shard, and take gradients, while the worker computes.
// Each other worker has one of them, so that who is slow to send, or to receive, holds up itself
// alone.
//
//   pull    each asks the keepers of its batch's slots, which answer with the weights of now
//   push    gradients, in the order of the keys; who sends them goes on
//   flush   answered when all that this worker has pushed before is applied
//
// Worker 0 hands out the rows of an epoch besides: a worker that asks it for weights is told
// whether there are any left.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/error.h"
#include "comm/request.h"
#include "runtime/lines.h"
#include "runtime/listener.h"
#include "wide/shard/shard_worker.h"

namespace motley::wide {

// A letter: what, and of how many slots.
//   kPull    keys follow; weights are the answer
//   kPush    gradients follow
//   kForget  the batch asked for last will not be pushed
//   kFlush   answered with a number
//   kGone    the last one
enum class Ask : std::int64_t { kPull, kPush, kForget, kFlush, kGone };

class ShardService final : private runtime::Hearer {
 public:
  // All workers make one, in the same order as their other calls. `worker`, each of whose shards
  // has one keeper, must outlive it; others may use its shards while this is open. Gradients of
  // weights that are older than `staleness` steps of others are left out.
  ShardService(ShardWorker& worker, std::int64_t staleness);
  ~ShardService();

  // Of worker 0: that many rows are to be handed out. Of others nothing.
  void open(std::uint64_t rows);

  // The weights of step.batch. False where no rows are left: then it must not be trained on.
  // pull() and what follows: one thread at a time.
  bool pull(Step& step);
  // The gradients of batches, in the order in which they were pulled.
  void push(const Step& step);
  void flush();
  // All workers call it, after which none calls anything else. Waits for them.
  void close();

  // What all samples share, by which gradients are applied from now on.
  void publish(std::span<const float> shared);
  // Batches of any worker whose gradients this one has left out.
  std::uint64_t left_out() const;
  ShardTraffic traffic() const;

 private:
  // What a worker was given the weights of, and has not pushed yet.
  struct Asked {
    std::vector<std::int32_t> slots;
    std::vector<std::int16_t> entries;
    std::int64_t others = 0;  // steps that others had made
  };
  struct Customer {
    std::deque<Asked> asked;
    std::int64_t steps = 0;
    bool gone = false;  // it asks for nothing more
    // Of the thread that listens to it.
    std::vector<float> answer;
    Request answered;
  };
  // What is on its way to one keeper.
  struct Sent {
    runtime::Letter letter{};
    std::vector<std::int32_t> keys;
    std::vector<float> gradients;
  };

  bool heard(int from, const runtime::Letter& letter) override;
  void lost(int from, const Error& error) noexcept override;
  void answer(int to, std::vector<float> floats);
  std::vector<float> give(int to, std::span<const std::int32_t> keys);
  void take(int from, std::span<const float> gradients);
  // The last batch that it asked for is none.
  void forget(int from);

  std::vector<std::int32_t> keys_for(const Step& step, std::span<const std::uint32_t> asked) const;
  void send_letter(int to, Ask what, std::size_t count);
  void tell_all(Ask what);
  // Throws as soon as one has failed, whatever becomes of the others: one that waits for a worker
  // that has given up, because a third has died, would last. Or as soon as that death is heard of.
  void wait_for_all(std::vector<Request>& requests);
  void check() const;  // throws what lost() was told first; mutex_ is held
  // Until all that was sent before is there.
  void settle();
  template <class Body>
  void for_keepers(const Step& step, Body body) const;

  ShardWorker& worker_;
  std::int64_t staleness_;
  Duration timeout_;
  std::size_t floats_;  // of a slot on its way
  runtime::Lines asks_, answers_;
  ShardTraffic traffic_;
  std::vector<Sent> sent_;        // by rank
  std::vector<Request> sending_;  // of it

  mutable std::mutex mutex_;  // of the worker's shards and of the rest
  std::condition_variable changed_;
  std::vector<Customer> customers_;  // by rank, this one's among them
  std::int64_t steps_ = 0;           // of all
  std::uint64_t rows_left_ = 0;
  std::uint64_t left_out_ = 0;
  std::uint64_t bytes_given_ = 0;
  std::vector<float> shared_;
  std::optional<Error> failure_;
  std::vector<Request>* waited_for_ = nullptr;  // by this worker's own thread
  std::list<runtime::Listener> listeners_;      // of one other worker each; end first
};

}  // namespace motley::wide
