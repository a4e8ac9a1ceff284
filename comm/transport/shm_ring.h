// comm/transport/shm_ring.h: a queue of messages from one process to another, in shared memory.
//
// The writer fills a slot, notes which as that of message `head`, and publishes it by advancing
// head; the reader advances tail when it is done with a message. Of the free slots the first is
// filled, so that a ring takes no more of the caches than the messages that are under way at once.
// A writer that dies while filling a slot has published nothing. One writer, one reader; the memory
// starts as zeros.
//
// Whoever must sleep first raises a flag and then looks once more; whoever makes news first stores
// it and then looks at the flag. Both in the order that seq_cst gives, so no news is slept through.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "comm/transport/futex.h"
#include "comm/transport/transport.h"

namespace motley {

inline constexpr std::size_t kCacheLine = 64;

// Where a rank sleeps.
struct alignas(kCacheLine) Doorbell {
  std::atomic<std::uint32_t> rings;
  std::atomic<std::uint32_t> waiting;  // ring only if this is not 0: it costs a system call
  std::atomic<std::uint32_t> core;     // on which the owner last looked around, plus 1

  // The owner looks around: says where, and tells.
  std::uint32_t look_from_here() noexcept {
    const auto here = static_cast<std::uint32_t>(sched_getcpu() + 1);
    if (core.load(std::memory_order_relaxed) != here) core.store(here, std::memory_order_relaxed);
    return here;
  }
  void ring() noexcept {
    if (waiting.load(std::memory_order_seq_cst) == 0) return;
    rings.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(rings);
  }
};

class ShmRing {
 public:
  static constexpr std::uint32_t kSlots = 8;

  struct Control {
    alignas(kCacheLine) std::atomic<std::uint32_t> head;          // published, modulo 2^32
    std::atomic<std::uint64_t> seal;                              // of the writer
    std::array<std::uint8_t, kSlots> slot_of;                     // by message, modulo kSlots
    alignas(kCacheLine) std::atomic<std::uint32_t> tail;          // given back
    alignas(kCacheLine) std::atomic<std::uint32_t> writer_waits;  // 1: ring the writer on give-back
  };
  struct Header {
    Tag tag;
    std::uint64_t size;
  };
  static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) <= kCacheLine);

  struct Message {
    Tag tag;
    ConstBytes data;  // in the slot
  };

  // Bytes of a ring whose messages have at most `payload_bytes`, a multiple of kCacheLine.
  static constexpr std::size_t bytes(std::size_t payload_bytes) noexcept {
    return sizeof(Control) + kSlots * (kCacheLine + payload_bytes);
  }

  ShmRing() = default;
  ShmRing(std::byte* memory, std::size_t payload_bytes) noexcept
      : control_(reinterpret_cast<Control*>(memory)),
        slots_(memory + sizeof(Control)),
        payload_bytes_(payload_bytes) {}

  // --- the writer --------------------------------------------------------------------------------

  // Before the first message: shows that the writer is who it shall be.
  void sign(std::uint64_t seal) noexcept { control_->seal.store(seal, std::memory_order_relaxed); }

  // Copies a message into a slot; false if there is none free. Ring the reader afterwards.
  bool write(const Tag& tag, ConstBytes data) noexcept {
    const std::uint32_t head = control_->head.load(std::memory_order_relaxed);
    const std::uint32_t tail = control_->tail.load(std::memory_order_seq_cst);
    if (head - tail >= kSlots) return false;
    const std::uint8_t free = first_free(tail, head);
    std::byte* const slot = slot_at(free);
    const Header header{tag, data.size()};
    std::memcpy(slot, &header, sizeof(header));
    if (!data.empty()) std::memcpy(slot + kCacheLine, data.data(), data.size());
    control_->slot_of[head % kSlots] = free;  // last, as the reader looks at that line
    control_->head.store(head + 1, std::memory_order_seq_cst);
    return true;
  }
  bool has_room() const noexcept {
    return control_->head.load(std::memory_order_relaxed) -
               control_->tail.load(std::memory_order_seq_cst) <
           kSlots;
  }
  // The reader shall ring the writer when it gives back the next slot. Then look again.
  void ask_for_room() noexcept { control_->writer_waits.store(1, std::memory_order_seq_cst); }

  // --- the reader --------------------------------------------------------------------------------

  bool has_message() const noexcept {
    return control_->head.load(std::memory_order_seq_cst) !=
           control_->tail.load(std::memory_order_relaxed);
  }
  // Of whoever wrote the messages that there are.
  std::uint64_t seal() const noexcept { return control_->seal.load(std::memory_order_relaxed); }
  // The oldest message; only if has_message(). Its size may be wrong if the writer is: check it.
  Message front() const noexcept {
    const std::byte* const slot = at(control_->tail.load(std::memory_order_relaxed));
    Header header;
    std::memcpy(&header, slot, sizeof(header));
    return {header.tag, {slot + kCacheLine, header.size}};
  }
  // Gives back the slot of front(). True if the writer waits for that: ring it.
  [[nodiscard]] bool pop() noexcept {
    const std::uint32_t tail = control_->tail.load(std::memory_order_relaxed);
    control_->tail.store(tail + 1, std::memory_order_seq_cst);
    return control_->writer_waits.load(std::memory_order_seq_cst) != 0 &&
           control_->writer_waits.exchange(0, std::memory_order_seq_cst) != 0;
  }

 private:
  // Where a message is. Whatever a writer notes, it is a slot of this ring.
  std::byte* at(std::uint32_t message) const noexcept { return slot_at(slot_of(message)); }
  std::byte* slot_at(std::uint32_t slot) const noexcept {
    return slots_ + slot * (kCacheLine + payload_bytes_);
  }
  std::uint32_t slot_of(std::uint32_t message) const noexcept {
    return control_->slot_of[message % kSlots] % kSlots;
  }
  // The first slot without one of the messages from `tail` to `head`, fewer than kSlots.
  std::uint8_t first_free(std::uint32_t tail, std::uint32_t head) const noexcept {
    std::uint32_t taken = 0;
    for (std::uint32_t i = tail; i != head; ++i) taken |= std::uint32_t{1} << slot_of(i);
    return static_cast<std::uint8_t>(std::countr_one(taken));
  }

  Control* control_ = nullptr;
  std::byte* slots_ = nullptr;
  std::size_t payload_bytes_ = 0;
};

}  // namespace motley
