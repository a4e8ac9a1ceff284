#include "comm/executor/execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/kernel/reduce.h"

namespace motley {
namespace {

const Algorithm& algorithm_of(const Call& call) {
  return algorithms_of(call.kind)[static_cast<std::size_t>(call.algorithm)];
}

bool overlap(const Step& a, const Step& b) noexcept {
  return a.first_chunk < b.first_chunk + b.chunk_count &&
         b.first_chunk < a.first_chunk + a.chunk_count;
}

std::uint32_t cookie_of(std::size_t lane, int step) noexcept {
  return static_cast<std::uint32_t>(lane) << 8 |
         static_cast<std::uint32_t>(step % Execution::kWindow);
}

std::string to_text(const Fingerprint& f) {
  std::string text = name(f.kind);
  if (f.kind == CallKind::kBarrier) return text;
  text += fmt::format(" of count {} {}", f.count, name(f.dtype));
  if (f.kind == CallKind::kAllReduce) text += fmt::format(", {}", name(f.op));
  if (f.kind == CallKind::kBroadcast) text += fmt::format(", root {}", f.root);
  return text + fmt::format(" (algorithm {}, {} pieces)", f.algorithm, f.pieces);
}

}  // namespace

Execution::Execution(Transport& transport, const Call& call) : transport_(transport), call_(call) {
  const int me = call.group->index_of(transport.rank());
  schedule_ = algorithm_of(call).make(me, call.group->size(), call.root);
  const std::size_t segment = std::min(call.segment_bytes, transport.max_message_bytes());
  const std::size_t chunk =
      segment / size_bytes(call.out.dtype) / static_cast<std::size_t>(schedule_.max_step_chunks);
  const std::size_t largest =
      std::max<std::size_t>(1, chunk) * static_cast<std::size_t>(schedule_.chunks);
  const std::size_t n = call.out.count;
  if (schedule_.steps != 0 && n != 0) {
    pieces_ = static_cast<std::uint32_t>((n + largest - 1) / largest);
  }
  piece_size_ = (n + pieces_ - 1) / pieces_;
  fingerprint_ = {.count = n,
                  .kind = call.kind,
                  .dtype = call.out.dtype,
                  .op = call.op,
                  .algorithm = static_cast<std::uint8_t>(call.algorithm),
                  .root = static_cast<std::uint32_t>(call.root),
                  .pieces = pieces_};
  lanes_.resize(std::min<std::size_t>(kLanes, pieces_));
}

void Execution::start() {
  for (std::size_t i = 0; i < lanes_.size() && started_pieces_ < pieces_; ++i) {
    start_piece(lanes_[i]);
    advance(i);
  }
}

// Pieces start in order on every rank, so the lowest unfinished one is under way everywhere.
void Execution::start_piece(Lane& lane) {
  lane.piece = started_pieces_++;
  lane.active = true;
  lane.head = lane.next = 0;
  const View out = whole(lane);
  if (call_.in.data != call_.out.data && out.count != 0) {
    std::memcpy(out.data, call_.in.data + (out.data - call_.out.data), out.size_bytes());
  }
}

void Execution::finish_piece(Lane& lane) {
  lane.active = false;
  if (call_.kind == CallKind::kAllReduce && call_.op == ReduceOp::kAverage) {
    divide(whole(lane), call_.group->size());
  }
  ++finished_pieces_;
}

void Execution::advance(std::size_t index) {
  Lane& lane = lanes_[index];
  while (lane.active) {
    for (bool moved = true; moved && !error_;) {
      moved = take_kept(lane);
      while (lane.head < lane.next && lane.at(lane.head).done) ++lane.head;
      moved |= post_next(index);
    }
    if (error_ || lane.head < schedule_.steps) return;
    finish_piece(lane);
    if (started_pieces_ < pieces_) start_piece(lane);
  }
}

// Messages that came before their turn take effect as soon as they may.
bool Execution::take_kept(Lane& lane) {
  bool moved = false;
  for (int step = lane.head; step < lane.next; ++step) {
    Pending& pending = lane.at(step);
    if (pending.done || !pending.arrived || blocked(lane, step)) continue;
    apply(lane, pending.step, pending.kept);
    pending.done = true;
    moved = true;
  }
  return moved;
}

// Starts the next step, in order: one that must wait holds back those behind it.
bool Execution::post_next(std::size_t index) {
  Lane& lane = lanes_[index];
  const bool all_posted = lane.next == lane.head || lane.at(lane.next - 1).posted;
  if (all_posted) {
    if (lane.next == schedule_.steps || lane.next - lane.head == kWindow) return false;
    Pending& pending = lane.at(lane.next);
    pending.step = schedule_.at(lane.next++);
    pending.posted = pending.arrived = pending.done = false;
  }
  const int step = lane.next - 1;
  if (lane.at(step).step.kind == Step::kSend && blocked(lane, step)) return false;
  post(index, step);
  return true;
}

void Execution::post(std::size_t index, int step) {
  Lane& lane = lanes_[index];
  Pending& pending = lane.at(step);
  const int peer = call_.group->rank_at(pending.step.peer);
  const Tag tag{.call = id(), .piece = lane.piece, .fingerprint = fingerprint_};
  const std::uint32_t cookie = cookie_of(index, step);
  pending.posted = true;
  if (pending.step.kind != Step::kSend) {
    transport_.post_recv(peer, tag, *this, cookie);
    return;
  }
  const View data = chunks_of(lane, pending.step);
  pending.done = transport_.post_send(peer, tag, data.bytes(), *this, cookie);
}

void Execution::apply(const Lane& lane, const Step& step, ConstBytes data) {
  const View out = chunks_of(lane, step);
  if (out.count == 0) return;
  if (step.kind == Step::kRecvReduce) {
    reduce(out, data, call_.op);
  } else {
    std::memcpy(out.data, data.data(), data.size());
  }
}

// True if an earlier unfinished step of the lane touches the same chunks. Two sends may share them.
bool Execution::blocked(const Lane& lane, int step) const noexcept {
  const Step& later = lane.at(step).step;
  for (int i = lane.head; i < step; ++i) {
    const Pending& earlier = lane.at(i);
    if (earlier.done || !overlap(earlier.step, later)) continue;
    if (earlier.step.kind != Step::kSend || later.kind != Step::kSend) return true;
  }
  return false;
}

void Execution::sent(std::uint32_t cookie) {
  if (error_) return;
  lanes_[cookie >> 8].window[cookie & 0xff].done = true;
  advance(cookie >> 8);
}

void Execution::received(std::uint32_t cookie, const Tag& tag, ConstBytes data) {
  if (error_) return;
  Lane& lane = lanes_[cookie >> 8];
  int step = lane.head;
  while (step % kWindow != static_cast<int>(cookie & 0xff)) ++step;
  Pending& pending = lane.at(step);
  const int peer = call_.group->rank_at(pending.step.peer);
  if (!agrees(tag, peer, data.size(), chunks_of(lane, pending.step).size_bytes())) return;
  if (blocked(lane, step)) {
    pending.kept.assign(data.begin(), data.end());
    pending.arrived = true;
    return;
  }
  apply(lane, pending.step, data);
  pending.done = true;
  advance(cookie >> 8);
}

// Fails the call if `peer` is in another call than we are, or cut it up otherwise.
bool Execution::agrees(const Tag& tag, int peer, std::size_t size, std::size_t expected) {
  if (tag.fingerprint != fingerprint_) {
    fail(
        Error(ErrorCode::kMismatch,
              fmt::format("{} disagrees with rank {}: {} here, {} there. All members must make the "
                          "same call with the same count, dtype and op.",
                          who(), peer, to_text(fingerprint_), to_text(tag.fingerprint)),
              {peer}));
    return false;
  }
  if (size != expected) {
    fail(Error(ErrorCode::kMismatch,
               fmt::format("{} got {} bytes from rank {} where {} were due. All ranks must run the "
                           "same version of Motley with the same segment_bytes.",
                           who(), size, peer, expected),
               {peer}));
    return false;
  }
  return true;
}

void Execution::failed(std::uint32_t, const Error& error) {
  if (error.code() == ErrorCode::kPeerLost && !error.ranks().empty()) {
    fail_lost(error.ranks().front(), error.what());
  } else {
    fail(Error(error.code(), fmt::format("{}: {}", who(), error.what()), error.ranks()));
  }
}

void Execution::fail(const Error& error) {
  if (!finished()) error_ = error;
}

void Execution::fail_lost(int rank, const std::string& why) {
  fail(Error(
      ErrorCode::kPeerLost,
      fmt::format("{} lost rank {}: {}. No call with that rank can complete.", who(), rank, why),
      {rank}));
}

void Execution::fail_aborted(const std::string& why) {
  fail(Error(ErrorCode::kAborted, fmt::format("{} was given up: {}.", who(), why)));
}

void Execution::fail_timeout(TimePoint now) {
  std::vector<int> ranks;
  for (const Lane& lane : lanes_) {
    for (int i = lane.head; lane.active && i < lane.next; ++i) {
      if (lane.at(i).outstanding()) ranks.push_back(call_.group->rank_at(lane.at(i).step.peer));
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  fail(Error(ErrorCode::kTimeout,
             fmt::format(
                 "{} timed out after {:.1f} s (allowed {:.1f} s) {}. Check rank{} {}, or raise "
                 "the timeout.",
                 who(), to_seconds(now - call_.started), to_seconds(call_.deadline - call_.started),
                 waiting_text(), ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", ")),
             ranks));
}

std::string Execution::waiting_text() const {
  for (const Lane& lane : lanes_) {
    for (int i = lane.head; lane.active && i < lane.next; ++i) {
      const Pending& pending = lane.at(i);
      if (!pending.outstanding()) continue;
      return fmt::format("waiting for rank {} ({}) to {} step {} of {}, piece {} of {}",
                         call_.group->rank_at(pending.step.peer), transport_.name(),
                         pending.step.kind == Step::kSend ? "take" : "send", i + 1, schedule_.steps,
                         lane.piece + 1, pieces_);
    }
  }
  return "before its first message";
}

std::string Execution::who() const {
  std::string text = fmt::format("rank {} of {}: {} #{}", transport_.rank(), transport_.size(),
                                 name(call_.kind), call_.number);
  const GroupTag& tag = call_.group->tag();
  if (tag.id != 0) {
    text += fmt::format(" of group {}.{}", tag.id & ~GroupTag::kControllerBit, tag.attempt);
  }
  if (call_.kind == CallKind::kBarrier) return text;
  return text + fmt::format(" ({}, {} {})", algorithm_of(call_).name, call_.out.count,
                            name(call_.out.dtype));
}

View Execution::whole(const Lane& lane) const noexcept {
  const std::size_t begin = std::min(call_.out.count, lane.piece * piece_size_);
  return call_.out.slice(begin, std::min(piece_size_, call_.out.count - begin));
}

View Execution::chunks_of(const Lane& lane, const Step& step) const noexcept {
  const View piece = whole(lane);
  const auto chunks = static_cast<std::size_t>(schedule_.chunks);
  const std::size_t chunk = (piece.count + chunks - 1) / chunks;
  const auto bound = [&](int i) {
    return std::min(piece.count, static_cast<std::size_t>(i) * chunk);
  };
  const std::size_t first = bound(step.first_chunk);
  return piece.slice(first, bound(step.first_chunk + step.chunk_count) - first);
}

}  // namespace motley
