// comm/shared_buffer.h: memory that the other ranks of this host can reach.
//
//   SharedBuffer gradients = comm.allocate(n * sizeof(float));
//   comm.all_reduce(gradients.as<float>(), ReduceOp::kSum).wait();   // no copy between ranks
//
// Collectives read and write such buffers where they lie, if those of all members are of this kind;
// other memory goes through a copy. Move-only; may be given back in any order, also after the
// communicator that it came from. It belongs to this rank: nobody touches it but in collectives
// that name it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace motley {

class SharedBuffer {
 public:
  // Who takes the memory back.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void give_back(std::byte* data, std::size_t bytes) noexcept = 0;
  };

  SharedBuffer() = default;
  // Memory of this process alone, for ranks that share none.
  static SharedBuffer of_own_memory(std::size_t bytes);
  // Buffers and communicator share the owner: whichever goes last ends it.
  SharedBuffer(std::byte* data, std::size_t bytes, std::shared_ptr<Owner> owner)
      : data_(data), bytes_(bytes), owner_(std::move(owner)) {}
  SharedBuffer(SharedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        owner_(std::move(other.owner_)) {}
  SharedBuffer& operator=(SharedBuffer&& other) noexcept {
    SharedBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~SharedBuffer() {
    if (owner_ != nullptr && data_ != nullptr) owner_->give_back(data_, bytes_);
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t size_bytes() const noexcept { return bytes_; }
  // The buffer as elements of T; bytes beyond the last whole one are left out. Starts at a page.
  template <class T>
  std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  void swap(SharedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(owner_, other.owner_);
  }

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::shared_ptr<Owner> owner_;
};

}  // namespace motley
