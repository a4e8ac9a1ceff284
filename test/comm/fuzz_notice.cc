// Notices of disagreements: what is decoded is encoded to the same bytes again.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/executor/notices.h"
#include "test/support/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto notice = decode_notice(3, {.group = {}, .number = 7}, bytes);
  if (!notice) return 0;
  test::require(std::ranges::equal(encode(*notice), bytes));
  test::require(notice->from == 3 && notice->call.number == 7);
  return 0;
}
