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
  int block = 0;  // whose parts these are, of several blocks: -1
  std::array<std::int8_t, kBruteForceRanks> counts{};  // how often each rank's term is in it, to 3
  std::uint64_t order = 0;                             // how they were combined; 0: never written

  friend bool operator==(const Value&, const Value&) = default;
};

Value term_of(int rank, int block) {
  Value value{.block = block, .counts = {}, .order = static_cast<std::uint64_t>(rank) + 1};
  value.counts[static_cast<std::size_t>(rank)] = 1;
  return value;
}

Value combine(const Value& a, const Value& b) {
  Value sum{.block = a.block == b.block ? a.block : -1, .counts = {}};
  for (std::size_t i = 0; i < sum.counts.size(); ++i) {
    sum.counts[i] = static_cast<std::int8_t>(std::min(3, a.counts[i] + b.counts[i]));
  }
  const auto [low, high] = std::minmax(a.order, b.order);
  sum.order = ((low * 0x9e3779b97f4a7c15u) ^ (low >> 29)) * 0xbf58476d1ce4e5b9u +
              high * 0x94d049bb133111ebu + 1;
  return sum;
}

// A chunk that is no scratch, before and after.
struct Part {
  int size = 1;
  bool is_input = false;
  Value first;         // at the start
  bool is_due = true;  // what follows counts
  bool is_sum = false;
  Value last;  // at the end; of a sum, its block alone
};

Part input(const Value& value, int size = 1) {
  return {.size = size, .is_input = true, .first = value, .is_due = false, .last = {}};
}
Part output(const Value& due, int size = 1) { return {.size = size, .first = {}, .last = due}; }

Part reduced_part(CallKind kind, int rank, int root, int chunk) {
  const bool due = kind != CallKind::kReduce || rank == root;
  return {.size = 10 + chunk,
          .first = term_of(rank, chunk),
          .is_due = due,
          .is_sum = true,
          .last = {.block = chunk}};
}

// What chunk `c` of rank `r` among `p` is; see comm/algorithm/schedule.h.
Part part_of(CallKind kind, int r, int p, int root, int c) {
  switch (kind) {
    case CallKind::kAllReduce:
    case CallKind::kReduce:
      return reduced_part(kind, r, root, c);
    case CallKind::kReduceScatter:
      if (c < p) return input(term_of(r, c));
      return {.first = {}, .is_sum = true, .last = {.block = r}};
    case CallKind::kBroadcast:
      return {.size = 10 + c,
              .first = r == root ? term_of(root, c) : Value{},
              .last = term_of(root, c)};
    case CallKind::kGather:
      if (r != root) return input(term_of(r, 0));
      [[fallthrough]];
    case CallKind::kAllGather:
    case CallKind::kAllGatherV: {
      Part part = output(term_of(c, 0), kind == CallKind::kAllGatherV ? 10 + c : 1);
      if (c == r) part.first = part.last;
      return part;
    }
    case CallKind::kScatter:
      return r == root && c < p ? input(term_of(root, c)) : output(term_of(root, r));
    case CallKind::kAllToAll:
      return c < p ? input(term_of(r, c)) : output(term_of(c - p, r));
    case CallKind::kAllToAllV:
      return c < p ? input(term_of(r, c), 10 + 8 * r + c)
                   : output(term_of(c - p, r), 10 + 8 * (c - p) + r);
    case CallKind::kSendRecv:
      return r == 0 ? input(term_of(0, 0)) : output(term_of(0, 0));
    case CallKind::kBarrier:
      break;
  }
  return {.first = {}, .is_due = false, .last = {}};
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

bool is_local(const Step& s) { return s.kind == Step::kCopy || s.kind == Step::kReduce; }

bool reads(const Step& s, int chunk) {
  if (s.kind != Step::kSend && !is_local(s)) return false;
  return chunk >= s.first_chunk && chunk < s.first_chunk + s.chunk_count;
}

bool writes(const Step& s, int chunk) {
  if (s.kind == Step::kSend) return false;
  const int first = is_local(s) ? s.to_chunk : s.first_chunk;
  return chunk >= first && chunk < first + s.chunk_count;
}

class World {
 public:
  World(CallKind kind, const std::vector<RankPlan>& plans, int root);

  // Whether all steps write what they may, and every send has its receive, of the same sizes.
  bool valid() { return allowed() && pair(); }
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
  int size() const { return static_cast<int>(plans_.size()); }
  int steps(int rank) const { return static_cast<int>(plans_[index(rank)].steps.size()); }
  const Step& step(int rank, int i) const { return plans_[index(rank)].steps[index(i)]; }
  const Part& part(int rank, int chunk) const { return parts_[index(rank)][index(chunk)]; }
  std::vector<int> sizes(int rank, int first, int count) const;

  StepState& state(int rank, int i) { return states_[index(rank)][index(i)]; }

  bool allowed() const;
  bool pair();
  bool act(int rank);
  bool try_start(int rank);
  bool try_finish(int rank, int i);
  bool held_back(int rank, int i);
  void read(int rank, int i);
  void apply(int rank, int i, const std::vector<Value>& values);

  CallKind kind_;
  const std::vector<RankPlan>& plans_;
  std::vector<std::vector<Part>> parts_;
  Mode mode_;
  std::vector<std::vector<StepState>> states_;
  std::vector<std::vector<Value>> data_;
  bool read_before_write_ = false;
};

World::World(CallKind kind, const std::vector<RankPlan>& plans, int root)
    : kind_(kind), plans_(plans), parts_(plans.size()) {
  for (int rank = 0; rank < size(); ++rank) {
    const RankPlan& plan = plans[index(rank)];
    const int owned = plan.chunks - static_cast<int>(plan.like.size());
    for (int c = 0; c < owned; ++c)
      parts_[index(rank)].push_back(part_of(kind, rank, size(), root, c));
    for (const int like : plan.like) {
      parts_[index(rank)].push_back(
          {.size = part(rank, like).size, .first = {}, .is_due = false, .last = {}});
    }
  }
}

std::vector<int> World::sizes(int rank, int first, int count) const {
  std::vector<int> list;
  for (int i = 0; i < count; ++i) list.push_back(part(rank, first + i).size);
  return list;
}

bool World::allowed() const {
  for (int rank = 0; rank < size(); ++rank) {
    const int chunks = plans_[index(rank)].chunks;
    for (int i = 0; i < steps(rank); ++i) {
      const Step& s = step(rank, i);
      if (is_local(s) && s.to_chunk + s.chunk_count > chunks) return false;
      for (int c = 0; c < chunks; ++c) {
        if (writes(s, c) && (part(rank, c).is_input || reads(s, c))) return false;
      }
      if (is_local(s) &&
          sizes(rank, s.first_chunk, s.chunk_count) != sizes(rank, s.to_chunk, s.chunk_count))
        return false;
    }
  }
  return true;
}

bool World::pair() {
  states_.assign(plans_.size(), {});
  for (int rank = 0; rank < size(); ++rank) states_[index(rank)].resize(index(steps(rank)));
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      std::vector<int> sends, receives;
      for (int i = 0; i < steps(from); ++i) {
        if (step(from, i).kind == Step::kSend && step(from, i).peer == to) sends.push_back(i);
      }
      for (int i = 0; i < steps(to); ++i) {
        const Step& s = step(to, i);
        if (s.kind != Step::kSend && !is_local(s) && s.peer == from) receives.push_back(i);
      }
      if (sends.size() != receives.size() || (from == to && !sends.empty())) return false;
      for (std::size_t k = 0; k < sends.size(); ++k) {
        const Step& sent = step(from, sends[k]);
        const Step& received = step(to, receives[k]);
        if (sizes(from, sent.first_chunk, sent.chunk_count) !=
            sizes(to, received.first_chunk, received.chunk_count))
          return false;
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
  data_.assign(plans_.size(), {});
  for (int rank = 0; rank < size(); ++rank) {
    for (const Part& part : parts_[index(rank)]) data_[index(rank)].push_back(part.first);
    for (StepState& s : states_[index(rank)]) s.started = s.finished = false;
  }
  std::mt19937_64 random(7);
  std::vector<int> order(plans_.size());
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
  for (int i = 0; i < steps(rank) && state(rank, i).started; ++i) {
    if (!state(rank, i).finished && try_finish(rank, i)) return true;
  }
  return try_start(rank);
}

bool World::try_start(int rank) {
  int next = 0;
  while (next < steps(rank) && state(rank, next).started) ++next;
  if (next == steps(rank)) return false;
  for (int i = 0; i <= next - mode_.window; ++i) {
    if (!state(rank, i).finished) return false;
  }
  if (step(rank, next).kind == Step::kSend) {
    if (held_back(rank, next)) return false;
    if (!mode_.synchronous) read(rank, next);
  }
  state(rank, next).started = true;
  return true;
}

bool World::try_finish(int rank, int i) {
  StepState& mine = state(rank, i);
  const Step& what = step(rank, i);
  if (is_local(what)) {
    if (held_back(rank, i)) return false;
    read(rank, i);
    apply(rank, i, mine.message);
    return mine.finished = true;
  }
  const StepState& other = state(what.peer, mine.peer_step);
  if (what.kind == Step::kSend) {
    if (mode_.synchronous && !other.started) return false;
    if (mode_.synchronous) read(rank, i);
    return mine.finished = true;
  }
  if (!other.finished || held_back(rank, i)) return false;
  apply(rank, i, other.message);
  return mine.finished = true;
}

void World::apply(int rank, int i, const std::vector<Value>& values) {
  const Step& what = step(rank, i);
  const bool sum = what.kind == Step::kRecvReduce || what.kind == Step::kReduce;
  for (int k = 0; k < what.chunk_count; ++k) {
    Value& chunk =
        data_[index(rank)][index(k + (is_local(what) ? what.to_chunk : what.first_chunk))];
    if (sum && chunk.order == 0) read_before_write_ = true;
    chunk = sum ? combine(chunk, values[index(k)]) : values[index(k)];
  }
}

// An earlier unfinished step writes what this one reads or writes, or reads what it writes.
bool World::held_back(int rank, int i) {
  const Step& later = step(rank, i);
  for (int k = 0; k < i; ++k) {
    const Step& earlier = step(rank, k);
    if (state(rank, k).finished) continue;
    for (int c = 0; c < plans_[index(rank)].chunks; ++c) {
      if (writes(earlier, c) && (reads(later, c) || writes(later, c))) return true;
      if (reads(earlier, c) && writes(later, c)) return true;
    }
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
  for (int rank = 0; rank < size(); ++rank) {
    for (std::size_t c = 0; c < parts_[index(rank)].size(); ++c) {
      const Part& due = parts_[index(rank)][c];
      const Value& is = data_[index(rank)][c];
      if (!due.is_due) continue;
      if (!due.is_sum && is != due.last) return false;
      if (!due.is_sum) continue;
      if (is.block != due.last.block) return false;
      if (kind_ == CallKind::kAllReduce && is != data_[0][c]) return false;
      for (std::size_t r = 0; r < plans_.size(); ++r) {
        if (is.counts[r] != 1) return false;
      }
    }
  }
  return true;
}

}  // namespace

bool right_by_brute_force(CallKind kind, const std::vector<RankPlan>& plans, int root) {
  World world(kind, plans, root);
  if (!world.valid()) return false;
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
  const int size = static_cast<int>(plans.size());
  for (int absent = 0; absent < size; ++absent) {
    world.run({.window = 1'000, .absent = absent});
    for (int rank = 0; rank < size; ++rank) {
      if (rank != absent && world.finished(rank)) return false;
    }
  }
  return true;
}

}  // namespace motley::test
