#include "comm/algorithm/cost.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace motley {
namespace {

constexpr int kWindow = 8;  // the executor's

Duration time_of(double bytes, double bytes_per_second) {
  return Duration(static_cast<Duration::rep>(bytes / bytes_per_second * 1e9));
}

bool overlap(const Step& a, const Step& b) {
  return std::max(a.first_chunk, b.first_chunk) <
         std::min(a.first_chunk + a.chunk_count, b.first_chunk + b.chunk_count);
}

// One rank on its way through its schedule. Times count from the start of the call.
class Walk {
 public:
  Walk(Schedule schedule, int rank, std::size_t bytes, const Topology& topology)
      : schedule_(std::move(schedule)),
        rank_(rank),
        bytes_(static_cast<double>(bytes)),
        topology_(topology) {}

  bool done() const { return next_ == schedule_.steps; }
  Step step() const { return schedule_.at(next_); }
  Duration end() const { return finished_; }
  // How long the message of a step occupies a port.
  Duration transfer(const Step& step) const {
    return time_of(bytes_of(step), topology_.link(rank_, step.peer).bytes_per_second);
  }
  // When the last message sent has left the port.
  Duration out_free() const { return out_free_; }

  // Takes the next step, a send; returns when the message has left.
  Duration send(const Step& step) {
    const Duration start = start_of(step);
    out_free_ = std::max(out_free_, start) + transfer(step);
    finish(step, start, start);
    return out_free_;
  }

  // When a message that would arrive at `tail`, were the port free, does arrive.
  Duration admit(Duration tail, Duration transfer) {
    in_free_ = std::max(tail, in_free_ + transfer);
    return in_free_;
  }

  // Takes the next step, a receive of a message that has arrived at `arrival`.
  void receive(const Step& step, Duration arrival) {
    const Duration start = start_of(step);
    Duration end = std::max(start, arrival);
    for (const Past& past : past_) {
      if (overlap(past.step, step)) end = std::max(end, past.end);
    }
    if (step.kind == Step::kRecvReduce) {
      reduced_ = std::max(end, reduced_) +
                 time_of(bytes_of(step), topology_.costs().reduce_bytes_per_second);
      end = reduced_;
    }
    finish(step, start, end);
  }

 private:
  struct Past {
    Step step;
    Duration end{};
    Duration all_ended{};  // the end of the last of all steps up to this one
  };

  double bytes_of(const Step& step) const {
    return bytes_ * step.chunk_count / static_cast<double>(schedule_.chunks);
  }
  Duration start_of(const Step& step) const {
    // The slot of the step that is a window earlier: it and all before it have ended.
    Duration start = std::max(started_, past_[static_cast<std::size_t>(next_ % kWindow)].all_ended);
    if (step.kind != Step::kSend) return start;
    for (const Past& past : past_) {
      if (past.step.kind != Step::kSend && overlap(past.step, step))
        start = std::max(start, past.end);
    }
    return start;
  }

  void finish(const Step& step, Duration start, Duration end) {
    started_ = start;
    finished_ = std::max(finished_, end);
    past_[static_cast<std::size_t>(next_ % kWindow)] = {step, end, finished_};
    ++next_;
  }

  Schedule schedule_;
  int rank_;
  double bytes_;
  const Topology& topology_;
  int next_ = 0;
  Duration started_{};   // of the step before
  Duration finished_{};  // of all steps so far
  Duration out_free_{};
  Duration in_free_{};
  Duration reduced_{};
  std::array<Past, kWindow> past_{};
};

// All ranks, message by message in the order of time.
class Simulation {
 public:
  Simulation(std::vector<Walk> ranks, const Topology& topology)
      : ranks_(std::move(ranks)), topology_(topology) {}

  Duration run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) progress(r);
    while (!messages_.empty()) {
      const Message next = messages_.top();
      messages_.pop();
      lane(next.from, next.to).arrivals.push_back(ranks_[next.to].admit(next.tail, next.transfer));
      progress(next.to);
    }
    Duration end{};
    for (const Walk& rank : ranks_) end = std::max(end, rank.end());
    return end;
  }

 private:
  struct Message {
    Duration tail;
    std::uint64_t number;
    std::size_t from;
    std::size_t to;
    Duration transfer;
    bool operator>(const Message& other) const {
      return tail != other.tail ? tail > other.tail : number > other.number;
    }
  };
  struct Lane {  // from one rank to another: when messages arrived, in order
    std::vector<Duration> arrivals;
    std::size_t taken = 0;
  };

  Lane& lane(std::size_t from, std::size_t to) { return lanes_[from * ranks_.size() + to]; }

  void progress(std::size_t r) {
    Walk& rank = ranks_[r];
    while (!rank.done()) {
      const Step step = rank.step();
      const auto peer = static_cast<std::size_t>(step.peer);
      if (step.kind == Step::kSend) {
        const Duration transfer = rank.transfer(step);
        const Duration tail =
            rank.send(step) + topology_.link(static_cast<int>(r), step.peer).latency;
        messages_.push({tail, sent_++, r, peer, transfer});
        continue;
      }
      Lane& from_peer = lane(peer, r);
      if (from_peer.taken == from_peer.arrivals.size()) return;
      rank.receive(step, from_peer.arrivals[from_peer.taken++]);
    }
  }

  std::vector<Walk> ranks_;
  const Topology& topology_;
  std::priority_queue<Message, std::vector<Message>, std::greater<>> messages_;
  std::unordered_map<std::size_t, Lane> lanes_;
  std::uint64_t sent_ = 0;
};

// As if the peer had sent what is received at the time of this rank's own last send.
Duration walk_alone(Walk rank, int index, const Topology& topology) {
  while (!rank.done()) {
    const Step step = rank.step();
    if (step.kind == Step::kSend) {
      rank.send(step);
    } else {
      const Duration tail = rank.out_free() + topology.link(step.peer, index).latency;
      rank.receive(step, rank.admit(tail, rank.transfer(step)));
    }
  }
  return rank.end();
}

}  // namespace

Duration cost(const Algorithm& family, std::size_t bytes, const Topology& topology, int root) {
  const int size = topology.ranks();
  const auto schedule_of = [&](int rank) { return family.make(rank, size, root); };
  std::int64_t steps = 0;
  for (int rank = 0; rank < size && steps <= kExactSteps; ++rank) steps += schedule_of(rank).steps;
  if (steps <= kExactSteps) {
    std::vector<Walk> ranks;
    for (int rank = 0; rank < size; ++rank)
      ranks.emplace_back(schedule_of(rank), rank, bytes, topology);
    return Simulation(std::move(ranks), topology).run();
  }
  int border = 0;  // a rank whose neighbour is on another host
  while (border < size - 2 && topology.same_host(border, border + 1)) ++border;
  Duration longest{};
  for (const int rank : {0, 1, border, border + 1, size - 1}) {
    longest = std::max(longest,
                       walk_alone(Walk(schedule_of(rank), rank, bytes, topology), rank, topology));
  }
  return longest;
}

}  // namespace motley
