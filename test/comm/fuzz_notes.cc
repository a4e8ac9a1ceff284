// What messages of the control plane carry inside, as it comes: notes of who is ready and of what a
// group is to do, and what ranks remember. What is read has values in their ranges and is encoded
// to the same bytes again; of memories, which may name a thing twice, the same is read again.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/control/group_note.h"
#include "comm/control/recollection.h"
#include "test/support/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (const auto ready = decode_ready(bytes)) {
    test::require(encode(*ready) == bytes);
    test::require(ready->grouping.group_size >= 0 && ready->eta >= Duration(0));
    for (const float value : ready->sketch) test::require(std::isfinite(value));
  }
  if (const auto group = decode_group(bytes)) {
    test::require(encode(*group) == bytes && group->begins >= Duration(0));
    for (const double weight : group->weights) test::require(weight >= 0 && weight <= 1);
  }
  if (const auto memory = decode_recollection(bytes)) {
    test::require(decode_recollection(encode(*memory)) == memory);
    for (const auto& [name, supply] : memory->supplies) {
      for (const auto* list : {&supply.uncounted, &supply.holds}) {
        for (const Range& range : *list) {
          test::require(range.begin >= 0 && range.count() > 0 && range.end <= supply.count);
        }
      }
    }
  }
  return 0;
}
