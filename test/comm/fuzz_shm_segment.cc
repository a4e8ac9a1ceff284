// What a peer says of its shared memory, and what that says at its head: it is mapped if it is what
// it shall be, and refused otherwise.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "comm/error.h"
#include "comm/transport/shm_segment.h"
#include "test/support/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  const ShmSegment::Plan plan{.rank = 1, .size = 2, .payload_bytes = 64, .token = "secret"};
  const ShmSegment segment = ShmSegment::create(plan, 1 << 12);
  std::string address = segment.address();
  bool sound = true;
  if (size > 0 && data[0] % 2 == 0) {
    // The head: from its first byte to the doorbell, which says nothing.
    auto* const bell = reinterpret_cast<std::byte*>(&segment.doorbell());
    std::byte* const head = bell - kCacheLine;
    for (std::size_t i = 1; i + 1 < size; i += 2) {
      std::byte& there = head[data[i] % kCacheLine];
      there ^= static_cast<std::byte>(data[i + 1]);
    }
  } else {
    for (std::size_t i = 1; i + 1 < size; i += 2) {
      const char to = static_cast<char>(data[i + 1]);
      if (to >= ' ') address[data[i] % address.size()] = to;
    }
    sound = address == segment.address();
  }
  try {
    const ShmSegment opened = ShmSegment::open(address, plan);
    test::require(opened.seal_of(1, "secret") == segment.seal_of(1, "secret"));
    (void)opened.rest_of_owner().can_be_read();
  } catch (const Error& error) {
    test::require(error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kMismatch ||
                  error.code() == ErrorCode::kIo);
    test::require(size > 0 || !sound);
  }
  return 0;
}
