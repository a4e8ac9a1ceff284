#include "test/support/brute_force.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>

namespace motley::test {
namespace {

// What a chunk holds.
struct Value {
  std::array<std::int8_t, kBruteForceRanks> counts{};  // how often each rank's term is in it, to 3
  std::uint64_t order = 0;                             // how they were combined; 0: never written

  friend bool operator==(const Value&, const Value&) = default;
};

Value term_of(int rank) {
  Value value{.counts = {}, .order = static_cast<std::uint64_t>(rank) + 1};
  value.counts[static_cast<std::size_t>(rank)] = 1;
  return value;
}

Value combine(const Value& a, const Value& b) {
  Value sum;
  for (std::size_t i = 0; i < sum.counts.size(); ++i) {
    sum.counts[i] = static_cast<std::int8_t>(std::min(3, a.counts[i] + b.counts[i]));
  }
  const auto [low, high] = std::minmax(a.order, b.order);
  sum.order = ((low * 0x9e3779b97f4a7c15u) ^ (low >> 29)) * 0xbf58476d1ce4e5b9u +
              high * 0x94d049bb133111ebu + 1;
  return sum;
}

struct Mode {
  bool synchronous = false;
  int window = 0;
  enum { kAscending, kDescending, kShuffled } order = kAscending;
  int absent = -1;  // this rank never starts
};

struct StepState {
  int peer_step = -1;  // of the send or receive that belongs to it
  bool started = false;
  bool finished = false;
  std::vector<Value> message;  // of a send: what was read
};

bool share_chunks(const Step& a, const Step& b) {
  for (int i = 0; i < a.chunk_count; ++i) {
    const int chunk = a.first_chunk + i;
    if (chunk >= b.first_chunk && chunk < b.first_chunk + b.chunk_count) return true;
  }
  return false;
}

class World {
 public:
  World(CallKind kind, int chunks, const std::vector<Program>& programs, int root)
      : kind_(kind), chunks_(chunks), root_(root), programs_(programs) {}

  // Whether every send has its receive, of the same chunks.
  bool pair();
  void run(const Mode& mode);
  bool finished(int rank) const {
    const auto& states = states_[index(rank)];
    return std::all_of(states.begin(), states.end(), [](const auto& s) { return s.finished; });
  }
  bool all_finished() const {
    for (int rank = 0; rank < size(); ++rank) {
      if (!finished(rank)) return false;
    }
    return true;
  }
  bool data_right() const;

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  int size() const { return static_cast<int>(programs_.size()); }
  const Step& step(int rank, int i) const { return programs_[index(rank)][index(i)]; }
  StepState& state(int rank, int i) { return states_[index(rank)][index(i)]; }

  bool act(int rank);
  bool try_start(int rank);
  bool try_finish(int rank, int i);
  bool held_back(int rank, int i);
  void read(int rank, int i);

  CallKind kind_;
  int chunks_;
  int root_;
  const std::vector<Program>& programs_;
  Mode mode_;
  std::vector<std::vector<StepState>> states_;
  std::vector<std::vector<Value>> data_;
  bool read_before_write_ = false;
};

bool World::pair() {
  states_.assign(programs_.size(), {});
  for (int rank = 0; rank < size(); ++rank)
    states_[index(rank)].resize(programs_[index(rank)].size());
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      std::vector<int> sends, receives;
      for (int i = 0; i < static_cast<int>(programs_[index(from)].size()); ++i) {
        if (step(from, i).kind == Step::kSend && step(from, i).peer == to) sends.push_back(i);
      }
      for (int i = 0; i < static_cast<int>(programs_[index(to)].size()); ++i) {
        if (step(to, i).kind != Step::kSend && step(to, i).peer == from) receives.push_back(i);
      }
      if (sends.size() != receives.size() || (from == to && !sends.empty())) return false;
      for (std::size_t k = 0; k < sends.size(); ++k) {
        const Step& sent = step(from, sends[k]);
        const Step& received = step(to, receives[k]);
        if (sent.chunk_count != received.chunk_count) return false;
        if (sent.chunk_count > 0 && sent.first_chunk != received.first_chunk) return false;
        state(from, sends[k]).peer_step = receives[k];
        state(to, receives[k]).peer_step = sends[k];
      }
    }
  }
  return true;
}

void World::run(const Mode& mode) {
  mode_ = mode;
  read_before_write_ = false;
  data_.assign(programs_.size(), std::vector<Value>(index(chunks_)));
  for (int rank = 0; rank < size(); ++rank) {
    if (kind_ != CallKind::kBroadcast || rank == root_) {
      data_[index(rank)].assign(index(chunks_), term_of(rank));
    }
    for (StepState& s : states_[index(rank)]) s.started = s.finished = false;
  }
  std::mt19937_64 random(7);
  std::vector<int> order(programs_.size());
  std::iota(order.begin(), order.end(), 0);
  if (mode.order == Mode::kDescending) std::reverse(order.begin(), order.end());
  for (bool moved = true; moved;) {
    moved = false;
    if (mode.order == Mode::kShuffled) std::shuffle(order.begin(), order.end(), random);
    for (const int rank : order) {
      while (rank != mode.absent && act(rank)) {
        moved = true;
        if (mode.order == Mode::kShuffled) break;
      }
    }
  }
}

// One thing that the rank may do now; false if there is none.
bool World::act(int rank) {
  const int steps = static_cast<int>(programs_[index(rank)].size());
  for (int i = 0; i < steps && state(rank, i).started; ++i) {
    if (!state(rank, i).finished && try_finish(rank, i)) return true;
  }
  return try_start(rank);
}

bool World::try_start(int rank) {
  const int steps = static_cast<int>(programs_[index(rank)].size());
  int next = 0;
  while (next < steps && state(rank, next).started) ++next;
  if (next == steps) return false;
  for (int i = 0; i <= next - mode_.window; ++i) {
    if (!state(rank, i).finished) return false;
  }
  if (step(rank, next).kind == Step::kSend) {
    for (int i = 0; i < next; ++i) {
      const bool receive = step(rank, i).kind != Step::kSend;
      if (receive && !state(rank, i).finished && share_chunks(step(rank, i), step(rank, next)))
        return false;
    }
    if (!mode_.synchronous) read(rank, next);
  }
  state(rank, next).started = true;
  return true;
}

bool World::try_finish(int rank, int i) {
  StepState& mine = state(rank, i);
  const Step& what = step(rank, i);
  const StepState& other = state(what.peer, mine.peer_step);
  if (what.kind == Step::kSend) {
    if (mode_.synchronous && !other.started) return false;
    if (mode_.synchronous) read(rank, i);
    mine.finished = true;
    return true;
  }
  if (!other.finished || held_back(rank, i)) return false;
  for (int k = 0; k < what.chunk_count; ++k) {
    Value& chunk = data_[index(rank)][index(what.first_chunk + k)];
    const Value& received = other.message[index(k)];
    if (what.kind == Step::kRecvReduce && chunk.order == 0) read_before_write_ = true;
    chunk = what.kind == Step::kRecv ? received : combine(chunk, received);
  }
  mine.finished = true;
  return true;
}

bool World::held_back(int rank, int i) {
  for (int k = 0; k < i; ++k) {
    if (!state(rank, k).finished && share_chunks(step(rank, k), step(rank, i))) return true;
  }
  return false;
}

void World::read(int rank, int i) {
  const auto first = data_[index(rank)].begin() + step(rank, i).first_chunk;
  state(rank, i).message.assign(first, first + step(rank, i).chunk_count);
  for (const Value& value : state(rank, i).message) read_before_write_ |= value.order == 0;
}

bool World::data_right() const {
  if (kind_ == CallKind::kBarrier) return true;
  if (read_before_write_) return false;
  for (const auto& chunks : data_) {
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      if (kind_ == CallKind::kBroadcast && chunks[c] != term_of(root_)) return false;
      if (kind_ == CallKind::kBroadcast) continue;
      if (chunks[c] != data_[0][c]) return false;
      for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
        if (chunks[c].counts[rank] != 1) return false;
      }
    }
  }
  return true;
}

}  // namespace

bool right_by_brute_force(CallKind kind, int chunks, const std::vector<Program>& programs,
                          int root) {
  World world(kind, chunks, programs, root);
  if (!world.pair()) return false;
  const Mode modes[] = {
      {.synchronous = true, .window = 2, .order = Mode::kAscending},
      {.synchronous = true, .window = 2, .order = Mode::kShuffled},
      {.synchronous = false, .window = 8, .order = Mode::kDescending},
      {.synchronous = false, .window = 8, .order = Mode::kShuffled},
  };
  for (const Mode& mode : modes) {
    world.run(mode);
    if (!world.all_finished() || !world.data_right()) return false;
  }
  if (kind != CallKind::kBarrier) return true;
  const int size = static_cast<int>(programs.size());
  for (int absent = 0; absent < size; ++absent) {
    world.run({.window = 1'000, .absent = absent});
    for (int rank = 0; rank < size; ++rank) {
      if (rank != absent && world.finished(rank)) return false;
    }
  }
  return true;
}

}  // namespace motley::test
