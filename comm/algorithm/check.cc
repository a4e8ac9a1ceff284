#include "comm/algorithm/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace motley {
namespace {

constexpr int kWindow = 2;
constexpr int kNothing = 0;  // the symbol of a chunk that was never written

// Sums of the ranks' terms as symbols: equal symbols mean equal terms combined in the same order.
class Sums {
 public:
  explicit Sums(int ranks) : words_((static_cast<std::size_t>(ranks) + 63) / 64) {
    once_.resize(words_);  // kNothing's
    twice_.resize(words_);
    for (int rank = 0; rank < ranks; ++rank) {
      add();
      once_[at(leaf(rank)) + static_cast<std::size_t>(rank) / 64] |= std::uint64_t{1} << rank % 64;
    }
  }

  static int leaf(int rank) { return rank + 1; }

  int combine(int a, int b) {
    if (a == kNothing || b == kNothing) return a + b;
    const auto [entry, is_new] = known_.try_emplace(std::minmax(a, b), size_);
    if (is_new) {
      const std::size_t sum = at(add());
      for (std::size_t i = 0; i < words_; ++i) {
        once_[sum + i] = once_[at(a) + i] | once_[at(b) + i];
        twice_[sum + i] =
            twice_[at(a) + i] | twice_[at(b) + i] | (once_[at(a) + i] & once_[at(b) + i]);
      }
    }
    return entry->second;
  }

  bool has(int sum, int rank) const { return bit(once_, sum, rank); }
  bool has_twice(int sum, int rank) const { return bit(twice_, sum, rank); }

 private:
  std::size_t at(int sum) const { return static_cast<std::size_t>(sum) * words_; }
  int add() {
    once_.resize(once_.size() + words_);
    twice_.resize(twice_.size() + words_);
    return size_++;
  }
  bool bit(const std::vector<std::uint64_t>& sets, int sum, int rank) const {
    return (sets[at(sum) + static_cast<std::size_t>(rank) / 64] >> rank % 64 & 1) != 0;
  }

  std::size_t words_;
  int size_ = 1;
  std::vector<std::uint64_t> once_;   // by sum: ranks whose term is in it
  std::vector<std::uint64_t> twice_;  // by sum: ranks whose term is in it more than once
  std::map<std::pair<int, int>, int> known_;
};

struct Pending {
  Step step;
  bool matched = false;  // a receive's message is here
  bool done = false;
  std::vector<int> message;  // symbols of its chunks
  int heard = kNothing;      // barrier: ranks that had started before this step did, or sent it
};

struct Rank {
  const Schedule* schedule = nullptr;
  int head = 0;  // oldest unfinished step
  int next = 0;  // steps [head, next) have started
  std::array<Pending, kWindow> window;
  std::vector<int> chunks;   // a symbol each
  int heard = kNothing;      // barrier: ranks that had started before this rank's last step did
  int end_heard = kNothing;  // barrier: ranks that had started before a receive took effect

  Pending& at(int step) { return window[static_cast<std::size_t>(step % kWindow)]; }
  bool finished() const { return head == schedule->steps; }
};

bool overlap(const Step& a, const Step& b) {
  return std::max(a.first_chunk, b.first_chunk) <
         std::min(a.first_chunk + a.chunk_count, b.first_chunk + b.chunk_count);
}

class Run {
 public:
  Run(CallKind kind, const std::vector<Schedule>& schedules, int root);
  std::string flaw();

 private:
  int size() const { return static_cast<int>(ranks_.size()); }
  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  std::string place(int r, int step) {
    return fmt::format("rank {} of {}, step {} ({})", r, size(), step,
                       to_text(rank(r).schedule->at(step)));
  }

  void advance(int r);
  bool start_next(int r);
  bool blocked(Rank& at, const Step& step, int index);
  void read(int r, int step);
  void match(int from, int to);
  void apply(int r, int step);
  bool valid(int r, int step);
  void wait_flaw();
  void result_flaw();
  void sum_flaw(int r, int chunk);

  CallKind kind_;
  int root_;
  Sums sums_;
  std::vector<Rank> ranks_;
  std::vector<int> runnable_;
  std::string flaw_;
};

Run::Run(CallKind kind, const std::vector<Schedule>& schedules, int root)
    : kind_(kind),
      root_(root),
      sums_(static_cast<int>(schedules.size())),
      ranks_(schedules.size()) {
  for (int r = 0; r < size(); ++r) {
    Rank& at = rank(r);
    at.schedule = &schedules[static_cast<std::size_t>(r)];
    const bool has_data = kind != CallKind::kBroadcast || r == root;
    at.chunks.assign(static_cast<std::size_t>(at.schedule->chunks),
                     has_data ? Sums::leaf(r) : kNothing);
    at.heard = Sums::leaf(r);
    runnable_.push_back(r);
  }
}

std::string Run::flaw() {
  for (int r = 1; r < size(); ++r) {
    const int chunks = rank(r).schedule->chunks;
    if (chunks == rank(0).schedule->chunks) continue;
    return fmt::format("rank {} of {} cuts the buffer into {} chunks, rank 0 into {}", r, size(),
                       chunks, rank(0).schedule->chunks);
  }
  while (!runnable_.empty() && flaw_.empty()) {
    const int r = runnable_.back();
    runnable_.pop_back();
    advance(r);
  }
  if (flaw_.empty()) wait_flaw();
  if (flaw_.empty()) result_flaw();
  return flaw_;
}

// Does all that rank r can do until others move.
void Run::advance(int r) {
  Rank& at = rank(r);
  for (bool moved = true; moved && flaw_.empty();) {
    moved = false;
    for (int step = at.head; step < at.next; ++step) {
      Pending& pending = at.at(step);
      if (!pending.matched || pending.done || blocked(at, pending.step, step)) continue;
      apply(r, step);
      moved = true;
    }
    while (at.head < at.next && at.at(at.head).done) ++at.head;
    moved |= start_next(r);
  }
}

bool Run::start_next(int r) {
  Rank& at = rank(r);
  const int step = at.next;
  if (!flaw_.empty() || step == at.schedule->steps || step - at.head == kWindow) return false;
  if (!valid(r, step)) return false;
  const Step what = at.schedule->at(step);
  if (what.kind == Step::kSend && blocked(at, what, step)) return false;
  at.at(step) = {.step = what, .message = {}};
  ++at.next;
  if (what.kind == Step::kSend) {
    read(r, step);
    match(r, what.peer);
  } else {
    at.at(step).heard = at.heard;
    match(what.peer, r);
  }
  return true;
}

// An earlier unfinished step touches the same chunks, and not both only read them.
bool Run::blocked(Rank& at, const Step& step, int index) {
  for (int i = at.head; i < index; ++i) {
    const Pending& earlier = at.at(i);
    if (earlier.done || !overlap(earlier.step, step)) continue;
    if (earlier.step.kind != Step::kSend || step.kind != Step::kSend) return true;
  }
  return false;
}

// Fills the message of a send.
void Run::read(int r, int step) {
  Rank& at = rank(r);
  Pending& pending = at.at(step);
  const auto first = at.chunks.begin() + pending.step.first_chunk;
  pending.message.assign(first, first + pending.step.chunk_count);
  if (kind_ == CallKind::kBarrier) {
    for (const int symbol : pending.message) at.heard = sums_.combine(at.heard, symbol);
    pending.heard = at.heard;
    return;
  }
  const auto hole = std::find(pending.message.begin(), pending.message.end(), kNothing);
  if (hole != pending.message.end()) {
    flaw_ = fmt::format("{} sends chunk {}, which this rank does not have yet", place(r, step),
                        pending.step.first_chunk + (hole - pending.message.begin()));
  }
}

// Brings the oldest unmatched send of `from` to `to` and the oldest unmatched receive together. As
// a synchronous send is unfinished until then, both are in their windows, if they have started.
void Run::match(int from, int to) {
  const auto oldest = [&](int r, int peer, bool is_send) {
    Rank& at = rank(r);
    for (int step = at.head; step < at.next; ++step) {
      const Pending& pending = at.at(step);
      const bool open = !pending.done && !pending.matched;
      if (open && pending.step.peer == peer && (pending.step.kind == Step::kSend) == is_send)
        return step;
    }
    return -1;
  };
  const int sent = oldest(from, to, true);
  const int received = oldest(to, from, false);
  if (sent < 0 || received < 0) return;
  Pending& send = rank(from).at(sent);
  Pending& receive = rank(to).at(received);
  if (send.step.chunk_count != receive.step.chunk_count ||
      (send.step.chunk_count != 0 && send.step.first_chunk != receive.step.first_chunk)) {
    flaw_ = fmt::format("{} meets {}: the chunks differ", place(from, sent), place(to, received));
    return;
  }
  receive.message = std::move(send.message);
  receive.heard = sums_.combine(receive.heard, send.heard);
  receive.matched = true;
  send.done = true;
  runnable_.push_back(from);
  runnable_.push_back(to);
}

// A receive takes effect.
void Run::apply(int r, int step) {
  Rank& at = rank(r);
  Pending& pending = at.at(step);
  pending.done = true;
  int* chunk = at.chunks.data() + pending.step.first_chunk;
  if (kind_ == CallKind::kBarrier) {  // all that had to happen before is known to have happened
    int heard = pending.heard;
    for (int i = 0; i < pending.step.chunk_count; ++i) heard = sums_.combine(heard, chunk[i]);
    std::fill_n(chunk, pending.step.chunk_count, heard);
    at.end_heard = sums_.combine(at.end_heard, heard);
    return;
  }
  for (int i = 0; i < pending.step.chunk_count; ++i) {
    const int symbol = pending.message[static_cast<std::size_t>(i)];
    if (pending.step.kind == Step::kRecvReduce && chunk[i] == kNothing) {
      flaw_ = fmt::format("{} reduces chunk {}, which this rank does not have yet", place(r, step),
                          pending.step.first_chunk + i);
    }
    chunk[i] = pending.step.kind == Step::kRecv ? symbol : sums_.combine(chunk[i], symbol);
  }
}

bool Run::valid(int r, int step) {
  const Step what = rank(r).schedule->at(step);
  if (what.peer < 0 || what.peer >= size() || what.peer == r) {
    flaw_ = fmt::format("{} names no other rank of the group", place(r, step));
  }
  const int chunks = rank(r).schedule->chunks;
  if (what.first_chunk < 0 || what.chunk_count < 0 ||
      what.first_chunk > chunks - what.chunk_count) {
    flaw_ = fmt::format("{} goes beyond the {} chunks", place(r, step), chunks);
  }
  return flaw_.empty();
}

// The oldest unfinished step of a rank has started, for nothing of its own rank can hold it back;
// it waits for its peer, which waits for another, until one has finished or was met before.
void Run::wait_flaw() {
  int r = 0;
  while (r < size() && rank(r).finished()) ++r;
  if (r == size()) return;
  std::vector<bool> met(ranks_.size());
  while (!met[static_cast<std::size_t>(r)]) {
    met[static_cast<std::size_t>(r)] = true;
    const int peer = rank(r).schedule->at(rank(r).head).peer;
    if (rank(peer).finished()) {
      flaw_ = fmt::format("{} waits for rank {}, which has finished", place(r, rank(r).head), peer);
      return;
    }
    r = peer;
  }
  flaw_ = "ranks wait in a circle:";
  const int first = r;
  do {
    flaw_ += fmt::format(" {};", place(r, rank(r).head));
    r = rank(r).schedule->at(rank(r).head).peer;
  } while (r != first);
  flaw_.back() = '.';
}

void Run::result_flaw() {
  for (int r = 0; r < size() && flaw_.empty(); ++r) {
    Rank& at = rank(r);
    if (kind_ == CallKind::kBarrier) {
      for (int other = 0; other < size(); ++other) {
        if (sums_.has(sums_.combine(at.heard, at.end_heard), other)) continue;
        flaw_ =
            fmt::format("rank {} of {} can finish before rank {} has started", r, size(), other);
      }
      continue;
    }
    for (int chunk = 0; chunk < at.schedule->chunks && flaw_.empty(); ++chunk) sum_flaw(r, chunk);
  }
}

void Run::sum_flaw(int r, int chunk) {
  const int sum = rank(r).chunks[static_cast<std::size_t>(chunk)];
  const auto flaw = [&](const std::string& what) {
    flaw_ = fmt::format("rank {} of {} ends with chunk {} {}", r, size(), chunk, what);
  };
  if (kind_ == CallKind::kBroadcast) {
    if (sum == kNothing)
      flaw("never written");
    else if (sum != Sums::leaf(root_))
      flaw(fmt::format("other than that of rank {}", root_));
    return;
  }
  for (int other = 0; other < size(); ++other) {
    if (!sums_.has(sum, other)) flaw(fmt::format("without the term of rank {}", other));
    if (sums_.has_twice(sum, other))
      flaw(fmt::format("with the term of rank {} more than once", other));
  }
  if (flaw_.empty() && sum != rank(0).chunks[static_cast<std::size_t>(chunk)]) {
    flaw("reduced in another order than on rank 0");
  }
}

}  // namespace

Verdict check(CallKind kind, const std::vector<Schedule>& schedules, int root) {
  return {Run(kind, schedules, root).flaw()};
}

Verdict check(CallKind kind, const Algorithm& family, int size) {
  const int roots = kind == CallKind::kBroadcast ? size : 1;
  for (int root = 0; root < roots; ++root) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < size; ++rank) schedules.push_back(family.make(rank, size, root));
    Verdict verdict = check(kind, schedules, root);
    if (!verdict.ok()) {
      verdict.flaw =
          fmt::format("{} ({}), root {}: {}", name(kind), family.name, root, verdict.flaw);
      return verdict;
    }
  }
  return {};
}

}  // namespace motley
