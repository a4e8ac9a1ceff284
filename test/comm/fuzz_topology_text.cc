// The text of topologies, which people write: read or refused as invalid, and what is read is
// written as text that reads back equal.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "comm/error.h"
#include "comm/topology.h"
#include "test/support/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Topology topology = Topology::parse(text, "input");
    test::require(topology.ranks() > 0);
    test::require(Topology::parse(topology.to_text(), "again") == topology);
  } catch (const Error& error) {
    test::require(error.code() == ErrorCode::kInvalid);
  }
  return 0;
}
