// Messages of the control plane: what is decoded is encoded to the same bytes again, and what is
// taken for a message of another version is a refusal that can be encoded.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/control/message.h"
#include "test/support/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const motley::ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto message = motley::decode(bytes);
  if (const auto refusal = motley::refusal_of(bytes)) {
    motley::test::require(!message && refusal->type == motley::MessageType::kRefused);
    motley::test::require(motley::decode(motley::encode(*refusal)) == refusal);
  }
  if (!message) return 0;
  const auto again = motley::encode(*message);
  motley::test::require(std::ranges::equal(again, bytes));
  motley::test::require(message->ranks.size() <= motley::kMaxGroupRanks);
  return 0;
}
