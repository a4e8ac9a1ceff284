// test/support/nccl_ranks.h: ranks as threads, each with an emulated device, joined by the stand-in
// for NCCL. Link motley_nccl_emulated.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/local.h"
#include "test/support/device_emulated.h"
#include "test/support/elements.h"
#include "test/support/nccl_stand_in.h"

namespace motley::test {

// How a call ends: with no code if it does not fail.
struct Ending {
  std::optional<ErrorCode> code = {};
  std::string text = "no error";
  std::vector<int> ranks = {};
};

inline void PrintTo(const Ending& ending, std::ostream* out) { *out << ending.text; }

inline Ending ending_of(const std::function<void()>& call) {
  try {
    call();
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what(), error.ranks()};
  }
}

// Runs `body` on threads with a device each, and says how it ends. Nobody leaves before all have
// ended; afterwards no communicator and no memory is left.
inline std::vector<Ending> endings_on_devices(int ranks,
                                              const std::function<void(Communicator&)>& body,
                                              const Options& options = {}) {
  reset_nccl_stand_in();
  emulate({.count = ranks});
  std::barrier done(ranks);
  std::vector<Ending> endings(static_cast<std::size_t>(ranks));
  run_local(
      ranks,
      [&](Communicator& comm) {
        const UseDevice device(comm.rank());
        endings[static_cast<std::size_t>(comm.rank())] = ending_of([&] { body(comm); });
        done.arrive_and_wait();
      },
      options);
  EXPECT_EQ(nccl_use().alive, 0);
  EXPECT_EQ(device_use(), DeviceUse{});
  return endings;
}

// The same, joined by NCCL. Nothing goes wrong.
inline void run_nccl_ranks(int ranks, const std::function<void(Communicator&)>& body,
                           const Options& options = {}) {
  const auto joined = [&](Communicator& comm) {
    comm.use_nccl();
    body(comm);
  };
  for (const Ending& ending : endings_on_devices(ranks, joined, options))
    EXPECT_EQ(ending.code, std::nullopt) << ending.text;
  EXPECT_THAT(nccl_faults(), testing::IsEmpty());
}

// Device memory with what the host has; in a stream of its own.
class OnDevice {
 public:
  explicit OnDevice(const std::vector<std::byte>& bytes) : buffer_(bytes.size()) {
    motley::copy(buffer_.view(bytes.size(), DType::kInt8), host(bytes), stream_);
    synchronize(stream_);
  }
  View view(std::size_t count, DType dtype) const noexcept { return buffer_.view(count, dtype); }
  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(buffer_.size_bytes());
    const View to(bytes.data(), bytes.size(), DType::kInt8);
    motley::copy(to, buffer_.view(bytes.size(), DType::kInt8), stream_);
    synchronize(stream_);
    return bytes;
  }

 private:
  static ConstView host(const std::vector<std::byte>& bytes) {
    return {bytes.data(), bytes.size(), DType::kInt8};
  }

  Stream stream_;
  DeviceBuffer buffer_;
};

}  // namespace motley::test
