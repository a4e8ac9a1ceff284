// comm/executor/arena.h: memory that calls borrow and that is kept for the next ones, so that a
// call allocates nothing, and touches no fresh page, once one like it has run.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "comm/view.h"

namespace motley {

class Arena {
 public:
  // Borrowed memory, aligned to 64 bytes; goes back when destroyed, which must be before its arena.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept
        : arena_(std::exchange(other.arena_, nullptr)), memory_(std::exchange(other.memory_, {})) {}
    Block& operator=(Block&& other) noexcept {
      std::swap(arena_, other.arena_);
      std::swap(memory_, other.memory_);
      return *this;
    }
    ~Block() { release(); }

    std::byte* data() const noexcept { return memory_.data(); }
    std::size_t capacity() const noexcept { return memory_.size(); }
    void release() noexcept {
      if (arena_ != nullptr) std::exchange(arena_, nullptr)->give_back(memory_);
      memory_ = {};
    }

   private:
    friend class Arena;
    Block(Arena& arena, Bytes memory) : arena_(&arena), memory_(memory) {}

    Arena* arena_ = nullptr;
    Bytes memory_;
  };

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // At least `bytes`: free memory of that size, rounded up to a power of two, else fresh.
  Block take(std::size_t bytes);
  // All memory there is, lent or not.
  std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  void give_back(Bytes memory) noexcept;

  std::vector<Bytes> free_;  // has room for all blocks there are
  std::size_t blocks_ = 0;
  std::size_t size_bytes_ = 0;
};

}  // namespace motley
