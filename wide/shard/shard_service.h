// wide/shard/shard_service.h: sharded training in which nobody waits for a slow worker: threads of
// each worker give out the weights of its shard, and take gradients, while the worker computes.
// Each other worker has one of them, so that who is slow to send, or to receive, holds up itself
// alone.
//
//   pull    each asks the keepers of its batch's slots, which answer with the weights of now
//   push    gradients, in the order of the keys; who sends them goes on
//   copies  keepers tell those that keep copies of what has changed: after as many pushes as there
//           are workers, or when what they told last is there, whichever is later
//   flush   answered when all that this worker has sent before is applied
//
// The first worker that lives hands out the rows of an epoch besides: one that asks it for weights
// is told whether there are any left.
//
// A worker that dies is missed by those that ask it: pull() and flush() throw, and then all that
// live have to meet; until they have left it out, they answer each other as before.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/error.h"
#include "comm/request.h"
#include "runtime/lines.h"
#include "runtime/listener.h"
#include "wide/shard/copy_news.h"
#include "wide/shard/shard_worker.h"

namespace motley::wide {

// A letter: what, and of how many slots.
//   kPull    keys follow; weights are the answer
//   kPush    gradients follow
//   kCopy    slots follow, and their states
//   kForget  the batch asked for last will not be pushed
//   kFlush   answered with a number
enum class Ask : std::int64_t { kPull, kPush, kCopy, kForget, kFlush };

class ShardService final : private runtime::Hearer {
 public:
  // All workers make one, in the same order as their other calls. `worker` must outlive it; others
  // may use its shards while this is open. Gradients of weights after which each of the others has
  // made more steps than `staleness`, on average, are left out.
  ShardService(ShardWorker& worker, std::int64_t staleness);
  ~ShardService();

  // Of the first worker that lives: that many rows are to be handed out. Of others nothing.
  void open(std::uint64_t rows);

  // The weights of step.batch. False where no rows are left: then it must not be trained on.
  // Throws kPeerLost where a worker has died that was not left out yet; whatever is asked then,
  // it does so again.
  // pull() and what follows: one thread at a time.
  bool pull(Step& step);
  // The gradients of batches, in the order in which they were pulled. Those that go to one that has
  // died are lost.
  void push(const Step& step);
  void flush();
  // Where nobody pushes: copies here become like what they are copies of, with others' flush().
  void tell_copies();

  // Those that are not in the worker's map any more are not heard any more. Then all that live
  // flush() what they have sent; then they begin_anew(), before the next pull().
  void leave_out_dead();
  void begin_anew();

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
    std::optional<Error> lost;  // it asks for nothing more, as it is dead
    // Of the thread that listens to it.
    std::vector<float> answer;
    Request answered;
  };
  // What is on its way to one worker.
  struct Sent {
    runtime::Letter letter{};
    std::vector<std::int32_t> keys;
    std::vector<float> floats;
  };
  struct Telling {
    Sent sent;
    std::vector<Request> requests;
    std::size_t pushes = 0;  // since
  };

  bool heard(int from, const runtime::Letter& letter) override;
  void lost(int from, const Error& error) noexcept override;
  void answer(int to, std::vector<float> floats);
  std::vector<float> give(int to, std::span<const std::int32_t> keys);
  void take(int from, std::span<const float> gradients);
  // The last batch that it asked for is none.
  void forget(int from);

  void put_copies(std::span<const std::int32_t> slots, std::span<const float> states);
  // mutex_ is held.
  void tell(int keeper, Telling& telling);
  bool is_there(Telling& telling);

  std::vector<std::int32_t> keys_for(const Step& step, std::span<const std::uint32_t> asked) const;
  // The letter and what follows it, whatever thread else sends to that worker.
  void post(int to, const Sent& sent, std::vector<Request>& requests);
  void tell_all(Ask what);
  void check() const;
  // Until all that was sent before is there. Not to the dead: who waits for answers is told.
  void settle(std::vector<Request>& sending);
  template <class Body>
  void for_keepers(const Step& step, Body body) const;

  ShardWorker& worker_;
  std::int64_t staleness_;  // of each of the others
  Duration timeout_;
  std::size_t floats_;  // of a slot on its way
  runtime::Lines asks_, answers_;
  ShardTraffic traffic_;
  std::vector<Sent> sent_;        // by rank
  std::vector<Request> sending_;  // of it

  mutable std::mutex mutex_;         // of the worker's shards and of the rest
  std::vector<Customer> customers_;  // by rank, this one's among them
  std::int64_t steps_ = 0;           // of all
  std::uint64_t rows_left_ = 0;
  std::uint64_t left_out_ = 0;
  std::uint64_t bytes_given_ = 0;
  std::vector<float> shared_;
  std::optional<Error> failure_;  // that is no death
  int rows_giver_ = 0;
  std::int64_t members_ = 0;
  std::optional<CopyNews> news_;
  std::map<int, Telling> telling_;  // by keeper
  std::uint64_t bytes_told_ = 0;

  std::mutex posting_;                          // of each letter with what follows it
  std::map<int, runtime::Listener> listeners_;  // of one other worker each; end first
};

}  // namespace motley::wide
