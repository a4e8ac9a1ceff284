// comm/transport/ucx_header.h: what stands before each message on a UCX connection, and how it is
// written: little-endian, so that hosts need not be alike.
#pragma once

#include <cstdint>
#include <optional>

#include "comm/transport/transport.h"

namespace motley {

struct UcxHeader {
  enum class Kind : std::uint8_t {
    kHello,       // the connection works
    kReady,       // all connections of the sender work
    kData,        // a message; the rest is its bytes
    kDeviceData,  // the same in device memory, which is fetched from there
    kFetched,     // the message `sequence` has been fetched by the receiver
    kCredit,      // `sequence` bytes, in total, have been taken by the receiver
    kBye,         // the sender closes its transport, as it lost rank `sequence` - 1, unless 0
  };
  static constexpr std::size_t kBytes = 80;
  // What a message of `size` bytes counts against the window.
  static constexpr std::uint64_t cost(std::size_t size) noexcept { return kBytes + size; }

  std::uint64_t seal = 0;      // of the receiver's session and the sender's rank: see seal.h
  std::uint64_t session = 0;   // of the receiver: what was meant for an earlier one is dropped
  std::uint64_t sequence = 0;  // of data between two ranks, from 0
  std::uint32_t from = 0;      // rank
  Kind kind = Kind::kData;
  Tag tag;

  void write(std::byte* out) const noexcept;  // kBytes
  // Empty if `message` is too short or says what no header says.
  static std::optional<UcxHeader> read(ConstBytes message) noexcept;
};

}  // namespace motley
