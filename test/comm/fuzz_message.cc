// Messages of the control plane: what is decoded is encoded to the same bytes again.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/control/message.h"
#include "test/support/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const motley::ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto message = motley::decode(bytes);
  if (!message) return 0;
  const auto again = motley::encode(*message);
  motley::test::require(std::ranges::equal(again, bytes));
  motley::test::require(message->ranks.size() <= motley::kMaxGroupRanks);
  return 0;
}
