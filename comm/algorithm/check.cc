#include "comm/algorithm/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "comm/algorithm/contents.h"
#include "comm/algorithm/symbols.h"

namespace motley {
namespace {

constexpr int kWindow = 2;
constexpr int kNothing = Symbols::kNothing;

struct Pending {
  Step step;
  bool matched = false;  // a receive's message is here, or none is needed
  bool done = false;
  std::vector<int> message;  // symbols of its chunks
  std::vector<int> sizes;    // size classes of its chunks
  int heard = kNothing;      // barrier: ranks that had started before this step did, or sent it
};

struct Rank {
  const Schedule* schedule = nullptr;
  int head = 0;  // oldest unfinished step
  int next = 0;  // steps [head, next) have started
  std::array<Pending, kWindow> window;
  std::vector<int> chunks;   // a symbol each
  std::vector<int> readers;  // barrier: ranks that had started before the chunk was read, a symbol
  int heard = kNothing;      // barrier: ranks that had started before this rank's last step did
  int end_heard = kNothing;  // barrier: ranks that had started before a receive took effect

  Pending& at(int step) { return window[static_cast<std::size_t>(step % kWindow)]; }
  bool finished() const { return head == schedule->steps; }
};

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

  std::string cut_flaw();
  void advance(int r);
  bool start_next(int r);
  bool blocked(Rank& at, const Step& step, int index);
  void read(int r, int step);
  void match(int from, int to);
  void apply(int r, int step);
  void hear(int r, int step);
  bool valid(int r, int step);
  std::string range_flaw(int r, const Step& what);
  void wait_flaw();
  void result_flaw();

  int size_class(int r, int chunk) {
    return contents_.size_class(r, rank(r).schedule->sized_as(chunk));
  }
  bool writable(int r, int chunk) {
    return chunk >= rank(r).schedule->first_scratch() || contents_.writable(r, chunk);
  }

  CallKind kind_;
  int root_;
  Contents contents_;
  std::vector<Rank> ranks_;
  std::vector<int> runnable_;
  std::string flaw_;
};

Run::Run(CallKind kind, const std::vector<Schedule>& schedules, int root)
    : kind_(kind),
      root_(root),
      contents_(kind, static_cast<int>(schedules.size()), root, schedules[0].first_scratch()),
      ranks_(schedules.size()) {
  for (int r = 0; r < size(); ++r) {
    rank(r).schedule = &schedules[static_cast<std::size_t>(r)];
    runnable_.push_back(r);
  }
}

std::string Run::flaw() {
  flaw_ = cut_flaw();
  for (int r = 0; r < size() && flaw_.empty(); ++r) {
    Rank& at = rank(r);
    at.chunks.assign(static_cast<std::size_t>(at.schedule->chunks), kNothing);
    at.readers = at.chunks;
    for (int chunk = 0; chunk < at.schedule->first_scratch(); ++chunk) {
      at.chunks[static_cast<std::size_t>(chunk)] = contents_.initial(r, chunk);
    }
    at.heard = contents_.symbols().leaf(r, 0);
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

// Whether the chunks are those that place_of() says, the same on all ranks.
std::string Run::cut_flaw() {
  const Schedule& first = *rank(0).schedule;
  for (int r = 0; r < size(); ++r) {
    const Schedule& mine = *rank(r).schedule;
    const int fixed = fixed_chunks(kind_, {.rank = r, .size = size(), .root = root_});
    const int due = fixed == 0 ? first.first_scratch() : fixed;
    if (mine.first_scratch() != due || mine.scratch < 0) {
      return fmt::format("rank {} of {} has {} chunks that are no scratch, where {} are due", r,
                         size(), mine.first_scratch(), due);
    }
    for (int i = mine.first_scratch(); i < mine.chunks; ++i) {
      if (mine.sized_as(i) >= 0 && mine.sized_as(i) < due) continue;
      return fmt::format("rank {} of {}: scratch chunk {} is as large as chunk {}, of {}", r,
                         size(), i, mine.sized_as(i), due);
    }
    if (mine.weights != first.weights)
      return fmt::format("rank {} of {} and rank 0 give the chunks different shares", r, size());
    if (!mine.weights.empty() && static_cast<int>(mine.weights.size()) != due)
      return fmt::format("rank {} of {}: {} shares for {} chunks", r, size(), mine.weights.size(),
                         due);
  }
  return {};
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
  Pending& pending = at.at(step) = {.step = what, .message = {}, .sizes = {}};
  pending.heard = at.heard;
  ++at.next;
  for (int i = 0; i < what.chunk_count; ++i)
    pending.sizes.push_back(size_class(r, what.first_chunk + i));
  if (what.kind == Step::kSend) {
    read(r, step);
    match(r, what.peer);
  } else if (what.is_local()) {
    pending.matched = true;
  } else {
    match(what.peer, r);
  }
  return true;
}

bool Run::blocked(Rank& at, const Step& step, int index) {
  for (int i = at.head; i < index; ++i) {
    if (!at.at(i).done && conflict(at.at(i).step, step)) return true;
  }
  return false;
}

// Fills the message of a send, or what a copy or reduction reads.
void Run::read(int r, int step) {
  Rank& at = rank(r);
  Pending& pending = at.at(step);
  const auto first = at.chunks.begin() + pending.step.first_chunk;
  pending.message.assign(first, first + pending.step.chunk_count);
  if (kind_ == CallKind::kBarrier) {
    for (const int symbol : pending.message)
      pending.heard = contents_.symbols().combine(pending.heard, symbol);
    if (pending.step.kind == Step::kSend) at.heard = pending.heard;
    return;
  }
  const auto hole = std::find(pending.message.begin(), pending.message.end(), kNothing);
  if (hole != pending.message.end()) {
    flaw_ = fmt::format("{} reads chunk {}, which this rank does not have yet", place(r, step),
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
  if (send.sizes != receive.sizes) {
    flaw_ = fmt::format("{} meets {}: the sizes of the chunks differ", place(from, sent),
                        place(to, received));
    return;
  }
  receive.message = std::move(send.message);
  receive.heard = contents_.symbols().combine(receive.heard, send.heard);
  receive.matched = true;
  send.done = true;
  runnable_.push_back(from);
  runnable_.push_back(to);
}

// A receive, copy or reduction takes effect.
void Run::apply(int r, int step) {
  Rank& at = rank(r);
  Pending& pending = at.at(step);
  pending.done = true;
  if (pending.step.is_local()) read(r, step);
  if (kind_ == CallKind::kBarrier) return hear(r, step);
  for (int i = 0; i < pending.step.chunk_count && flaw_.empty(); ++i) {
    const int chunk = pending.step.first_written() + i;
    int& held = at.chunks[static_cast<std::size_t>(chunk)];
    const int symbol = pending.message[static_cast<std::size_t>(i)];
    const bool sum = pending.step.kind == Step::kRecvReduce || pending.step.kind == Step::kReduce;
    if (sum && held == kNothing) {
      flaw_ = fmt::format("{} reduces chunk {}, which this rank does not have yet", place(r, step),
                          chunk);
    }
    held = sum ? contents_.symbols().combine(held, symbol) : symbol;
  }
}

// In a barrier, chunks hold what is known to have happened before they were last written.
void Run::hear(int r, int step) {
  Rank& at = rank(r);
  const Step& what = at.at(step).step;
  Symbols& symbols = contents_.symbols();
  int heard = at.at(step).heard;
  for (int i = 0; i < what.chunk_count; ++i) {
    const auto chunk = static_cast<std::size_t>(what.first_written() + i);
    heard = symbols.combine(heard, symbols.combine(at.chunks[chunk], at.readers[chunk]));
  }
  for (int i = 0; i < what.chunk_count; ++i) {
    at.chunks[static_cast<std::size_t>(what.first_written() + i)] = heard;
    int& readers = at.readers[static_cast<std::size_t>(what.first_chunk + i)];
    if (what.is_local()) readers = symbols.combine(readers, heard);
  }
  at.end_heard = symbols.combine(at.end_heard, heard);
}

bool Run::valid(int r, int step) {
  const Step what = rank(r).schedule->at(step);
  const std::string flaw = range_flaw(r, what);
  if (!flaw.empty()) flaw_ = place(r, step) + flaw;
  return flaw_.empty();
}

std::string Run::range_flaw(int r, const Step& what) {
  if (!what.is_local() && (what.peer < 0 || what.peer >= size() || what.peer == r))
    return " names no other rank of the group";
  const int chunks = rank(r).schedule->chunks;
  const int count = what.chunk_count;
  const int written = what.first_written();
  if (count < 0 || what.first_chunk < 0 || what.first_chunk > chunks - count || written < 0 ||
      written > chunks - count)
    return fmt::format(" goes beyond the {} chunks", chunks);
  if (what.kind == Step::kSend) return {};
  if (what.is_local() && count > 0 && std::abs(what.first_chunk - what.to_chunk) < count)
    return " reads what it writes";
  for (int i = 0; i < count; ++i) {
    if (!writable(r, written + i)) return fmt::format(" writes chunk {} of `in`", written + i);
    if (what.is_local() && size_class(r, what.first_chunk + i) != size_class(r, written + i))
      return " joins chunks of different sizes";
  }
  return {};
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
      const int heard = contents_.symbols().combine(at.heard, at.end_heard);
      for (int other = 0; other < size(); ++other) {
        if (contents_.symbols().has(heard, other)) continue;
        flaw_ =
            fmt::format("rank {} of {} can finish before rank {} has started", r, size(), other);
      }
      continue;
    }
    for (int chunk = 0; chunk < at.schedule->first_scratch() && flaw_.empty(); ++chunk) {
      const auto i = static_cast<std::size_t>(chunk);
      const int first = i < rank(0).chunks.size() ? rank(0).chunks[i] : kNothing;
      const std::string flaw = contents_.flaw(r, chunk, at.chunks[i], first);
      if (!flaw.empty())
        flaw_ = fmt::format("rank {} of {} ends with chunk {} {}", r, size(), chunk, flaw);
    }
  }
}

}  // namespace

Verdict check(CallKind kind, const std::vector<Schedule>& schedules, int root) {
  return {Run(kind, schedules, root).flaw()};
}

Verdict check(CallKind kind, const Algorithm& family, int size, const Topology* topology) {
  const int roots = has_root(kind) ? size : 1;
  for (int root = 0; root < roots; ++root) {
    std::vector<Schedule> schedules;
    std::vector<Schedule> rests;
    for (int rank = 0; rank < size; ++rank) {
      const Shape shape{.rank = rank, .size = size, .root = root, .topology = topology};
      schedules.push_back(family.make(shape));
      if (family.rest != nullptr) rests.push_back(family.rest(shape));
    }
    Verdict verdict = check(family.moves_as(kind), schedules, root);
    if (verdict.ok() && !rests.empty()) verdict = check(kind, rests, root);
    if (verdict.ok()) continue;
    verdict.flaw = fmt::format("{} ({}), root {}: {}", name(kind), family.name, root, verdict.flaw);
    return verdict;
  }
  return {};
}

}  // namespace motley
