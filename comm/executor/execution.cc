#include "comm/executor/execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "comm/algorithm/families.h"
#include "comm/executor/describe.h"
#include "comm/transport/device_messages.h"
#include "comm/transport/pause.h"

namespace motley {
namespace {

const Algorithm& algorithm_of(const Call& call) {
  return algorithms_of(call.kind)[static_cast<std::size_t>(call.algorithm)];
}

std::optional<Schedule> rest_of(const Call& call, const Shape& shape) {
  const Algorithm& family = algorithm_of(call);
  return family.rest != nullptr ? std::optional(family.rest(shape)) : std::nullopt;
}

// How long a call that failed waits for its copies; a device that takes longer is broken.
constexpr Duration kCopyPatience = seconds(1);

std::uint32_t cookie_of(std::size_t lane, int step) noexcept {
  return static_cast<std::uint32_t>(lane) << 8 |
         static_cast<std::uint32_t>(step % Execution::kWindow);
}

}  // namespace

Execution::Execution(Transport& transport, Arena& arena, Staging* staging, const Call& call)
    : RunningCall(transport, call),
      arena_(arena),
      staging_(staging),
      shape_{.rank = call.group->index_of(transport.rank()),
             .size = call.group->size(),
             .root = call.root,
             .topology = call.topology},
      schedule_(algorithm_of(call).make(shape_)),
      rest_(rest_of(call, shape_)),
      buffers_(arena, staging, call_, shape_, schedule_,
               std::min(call.segment_bytes, transport.max_message_bytes()),
               rest_ ? Heads::kFirst : Heads::kNone),
      pieces_(buffers_.layout().pieces()) {
  fingerprint_ = {.count = call.agreed_count(),
                  .kind = call.kind,
                  .dtype = call.out.dtype,
                  .op = call.op,
                  .algorithm = static_cast<std::uint8_t>(call.algorithm),
                  .root = static_cast<std::uint32_t>(call.root),
                  .pieces = varies(call.kind) ? 1 : pieces_};
  const int lanes = staging == nullptr ? kLanes : call.staging_slots;
  lanes_.resize(std::min<std::size_t>(static_cast<std::size_t>(lanes), pieces_));
  copied_ = call.started;
}

void Execution::start() {
  if (staging_ == nullptr) return start_pieces();
  take_slots();
  Event& mark = lanes_[0].at.slot->copied;
  mark.record(call_.stream);
  waits_for_stream_ = !mark.done();
  if (!waits_for_stream_) start_pieces();
}

// The first lane has one in any case, so that no call waits for the memory of another.
void Execution::take_slots() {
  const std::size_t bytes = buffers_.piece_bytes();
  lanes_[0].at.slot = staging_->slots().take(call_.staging_bytes, bytes);
  for (std::size_t i = 1; i < lanes_.size(); ++i) {
    lanes_[i].at.slot = staging_->slots().take_within(call_.staging_bytes, bytes);
    if (!lanes_[i].at.slot) lanes_.resize(i);
  }
}

void Execution::start_pieces() {
  for (std::size_t i = 0; i < lanes_.size() && started_pieces_ < pieces_; ++i) {
    start_piece(lanes_[i]);
    advance(i);
  }
}

// Pieces start in order on every rank, so the lowest unfinished one is under way everywhere.
void Execution::start_piece(Lane& lane) {
  lane.at.piece = started_pieces_++;
  lane.head = lane.next = 0;
  lane.state = State::kCopiesIn;  // some are under way, too, if it throws
  if (buffers_.begin(lane.at)) {
    copied_.reset();
  } else {
    lane.state = State::kRuns;
  }
}

void Execution::finish_piece(Lane& lane) {
  if (buffers_.layout().is_heads(lane.at.piece) && !counts_agree(lane)) return;
  lane.state = State::kCopiesOut;
  if (buffers_.finish(lane.at)) {
    copied_.reset();
    return;
  }
  lane.state = State::kIdle;
  ++finished_pieces_;
}

void Execution::look_at_copies(TimePoint now) {
  if (staging_ == nullptr || finished()) return;
  try {
    const UseDevice device(staging_->device());
    bool moved = !copied_;
    if (waits_for_stream_ && lanes_[0].at.slot->copied.done()) {
      waits_for_stream_ = false;
      moved = true;
      start_pieces();
    }
    for (std::size_t i = 0; i < lanes_.size() && !finished(); ++i) moved |= look_at_copy(i);
    if (moved) copied_ = now;
  } catch (const Error& error) {
    failed(0, error);
  }
}

// True if the lane's copies were done.
bool Execution::look_at_copy(std::size_t index) {
  Lane& lane = lanes_[index];
  if (!lane.copies() || !lane.at.slot->copied.done()) return false;
  if (lane.state == State::kCopiesIn) {
    buffers_.begun(lane.at);
    lane.state = State::kRuns;
  } else {
    lane.state = State::kIdle;
    ++finished_pieces_;
    if (started_pieces_ < pieces_) start_piece(lane);
  }
  advance(index);
  return true;
}

// Copies are soon done, most of them sooner than another thread would give the core back; the work
// that the user has put into the stream may take its time.
TimePoint Execution::next_look(TimePoint now) const noexcept {
  constexpr Duration kAtOnce = std::chrono::microseconds(50);
  const TimePoint since = copied_.value_or(now);
  if (waits_for_stream_) return motley::next_look(now, since);
  if (std::none_of(lanes_.begin(), lanes_.end(), std::mem_fn(&Lane::copies)))
    return TimePoint::max();
  return now - since < kAtOnce ? now : now + std::chrono::microseconds(2);
}

void Execution::release_memory() noexcept {
  const TimePoint patience = Clock::real().now() + kCopyPatience;
  for (const Lane& lane : lanes_) {
    if (!lane.copies() && !(call_.direct && lane.runs())) continue;
    try {
      if (error_) buffers_.mark_end(lane.at.slot->copied);
      while (!lane.at.slot->copied.done() && Clock::real().now() < patience) pause_briefly();
    } catch (const Error&) {
      // The device does nothing any more.
    }
  }
  lanes_.clear();
}

void Execution::advance(std::size_t index) {
  try {
    advance_lane(index);
  } catch (const Error& error) {  // of the device
    failed(0, error);
  }
}

void Execution::advance_lane(std::size_t index) {
  Lane& lane = lanes_[index];
  while (lane.runs()) {
    for (bool moved = true; moved && !error_;) {
      moved = take_kept(lane);
      while (lane.head < lane.next && lane.at_step(lane.head).done) ++lane.head;
      moved |= post_next(index);
    }
    if (error_ || lane.head < schedule_of(lane).steps) return;
    next_piece(lane);
  }
}

void Execution::next_piece(Lane& lane) {
  try {
    finish_piece(lane);
    if (lane.state == State::kIdle && started_pieces_ < pieces_) start_piece(lane);
  } catch (const Error& error) {  // of the device
    failed(0, error);
  }
}

// Messages that came before their turn, copies and reductions take effect as soon as they may.
bool Execution::take_kept(Lane& lane) {
  bool moved = false;
  for (int step = lane.head; step < lane.next; ++step) {
    Pending& pending = lane.at_step(step);
    if (pending.done || !pending.arrived || blocked(lane, step)) continue;
    if (pending.kept_on_device) {
      apply(lane, pending.step, std::exchange(pending.kept_on_device, {}));
    } else {
      apply(lane, pending.step, ConstBytes(pending.kept.data(), pending.kept_bytes));
    }
    pending.done = true;
    moved = true;
  }
  return moved;
}

// Starts the next step, in order: one that must wait holds back those behind it.
bool Execution::post_next(std::size_t index) {
  Lane& lane = lanes_[index];
  const bool all_posted = lane.next == lane.head || lane.at_step(lane.next - 1).posted;
  if (all_posted) {
    const Schedule& schedule = schedule_of(lane);
    if (lane.next == schedule.steps || lane.next - lane.head == kWindow) return false;
    Pending& pending = lane.at_step(lane.next);
    pending.step = schedule.at(lane.next++);
    pending.posted = pending.arrived = pending.done = false;
    pending.kept_bytes = 0;
  }
  const int step = lane.next - 1;
  if (lane.at_step(step).step.kind == Step::kSend && blocked(lane, step)) return false;
  post(index, step);
  return true;
}

void Execution::post(std::size_t index, int step) {
  Lane& lane = lanes_[index];
  Pending& pending = lane.at_step(step);
  pending.posted = true;
  if (pending.step.is_local()) {
    pending.arrived = true;
    return;
  }
  // Both ends know that the message has no element; that of piece 0 tells that they agree on it.
  if (varies(call_.kind) && lane.at.piece > 0 &&
      buffers_.message_bytes(lane.at.piece, pending.step) == 0) {
    pending.done = true;
    return;
  }
  const int peer = call_.group->rank_at(pending.step.peer);
  const Tag tag{
      .call = id(), .piece = lane.at.piece, .fingerprint = fingerprint_of(lane, pending.step)};
  const std::uint32_t cookie = cookie_of(index, step);
  if (pending.step.is_receive()) {
    transport_.post_recv(peer, tag, *this, cookie);
    return;
  }
  const std::size_t size = buffers_.message_bytes(lane.at.piece, pending.step);
  if (call_.direct && size != 0) {
    DeviceMessages& messages = *transport_.device_messages();
    DeviceMessage message = messages.take(size);
    buffers_.gather(lane.at, pending.step, message);
    pending.done = messages.post_send(peer, tag, std::move(message), *this, cookie);
    return;
  }
  const ConstBytes data = buffers_.read(lane.at, pending.step, pending.kept);
  pending.done = transport_.post_send(peer, tag, data, *this, cookie);
}

template <class Data>
void Execution::apply(const Lane& lane, const Step& step, Data&& data) {
  if (step.is_local()) {
    buffers_.move(lane.at, step);
  } else {
    buffers_.write(lane.at, step, data);
  }
}

// True if an earlier unfinished step of the lane touches the same chunks. Two may read them.
bool Execution::blocked(const Lane& lane, int step) const noexcept {
  const Step& later = lane.at_step(step).step;
  for (int i = lane.head; i < step; ++i) {
    const Pending& earlier = lane.at_step(i);
    if (!earlier.done && conflict(earlier.step, later)) return true;
  }
  return false;
}

void Execution::sent(std::uint32_t cookie) {
  if (error_) return;
  lanes_[cookie >> 8].window[cookie & 0xff].done = true;
  advance(cookie >> 8);
}

void Execution::received(std::uint32_t cookie, const Tag& tag, ConstBytes data) {
  Pending* const pending = arriving(cookie, tag, data.size(), Memory::kHost);
  if (pending == nullptr) return;
  if (pending->arrived) {
    if (pending->kept.capacity() < data.size()) pending->kept = arena_.take(data.size());
    std::copy(data.begin(), data.end(), pending->kept.data());
    pending->kept_bytes = data.size();
    return;
  }
  apply(lanes_[cookie >> 8], pending->step, data);
  pending->done = true;
  advance(cookie >> 8);
}

void Execution::received_on_device(std::uint32_t cookie, const Tag& tag, DeviceMessage message) {
  Pending* const pending = arriving(cookie, tag, message.size, Memory::kDevice);
  if (pending == nullptr) return;
  pending->kept_on_device = std::move(message);
  pending->arrived = true;
  advance(cookie >> 8);
}

// The step that a message is for; it has arrived, if it must wait. Null if the call has failed.
Execution::Pending* Execution::arriving(std::uint32_t cookie, const Tag& tag, std::size_t size,
                                        Memory memory) {
  if (error_) return nullptr;
  ++messages_;
  bytes_ += size;
  Lane& lane = lanes_[cookie >> 8];
  int step = lane.head;
  while (step % kWindow != static_cast<int>(cookie & 0xff)) ++step;
  Pending& pending = lane.at_step(step);
  if (!agrees(lane, pending.step, tag, size)) return nullptr;
  if (size != 0 && (memory == Memory::kDevice) != call_.direct) {
    const int peer = call_.group->rank_at(pending.step.peer);
    fail_mismatch(
        disagreement_with(peer, fmt::format("a buffer in device memory at rank {}, none at rank {}",
                                            call_.direct ? transport_.rank() : peer,
                                            call_.direct ? peer : transport_.rank())));
    return nullptr;
  }
  pending.arrived = blocked(lane, step);
  return &pending;
}

std::vector<int> Execution::awaited() const {
  std::vector<int> ranks;
  for (const Lane& lane : lanes_) {
    for (int i = lane.head; lane.runs() && i < lane.next; ++i) {
      if (lane.at_step(i).outstanding())
        ranks.push_back(call_.group->rank_at(lane.at_step(i).step.peer));
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::string Execution::waiting_text() const {
  for (const Lane& lane : lanes_) {
    for (int i = lane.head; lane.runs() && i < lane.next; ++i) {
      const Pending& pending = lane.at_step(i);
      if (!pending.outstanding()) continue;
      return fmt::format("waiting for rank {} ({}) to {} step {} of {}, piece {} of {}",
                         call_.group->rank_at(pending.step.peer), transport_.name(),
                         pending.step.kind == Step::kSend ? "take" : "send", i + 1,
                         schedule_of(lane).steps, lane.at.piece + 1, pieces_);
    }
  }
  if (waits_for_stream_) return "waiting for the work in the stream that it comes after";
  for (const Lane& lane : lanes_) {
    if (!lane.copies()) continue;
    return fmt::format("copying piece {} of {} {} the device", lane.at.piece + 1, pieces_,
                       lane.state == State::kCopiesIn ? "from" : "to");
  }
  return "before its first message";
}

std::string Execution::who() const {
  return motley::who(transport_, call_, algorithm_of(call_).name);
}

}  // namespace motley
