// What signs of life carry and what the controller tells on: encoded again it is the same, and a
// diagnosis can be made from it.
#include <cstddef>
#include <cstdint>

#include "comm/control/diagnosis.h"
#include "comm/control/progress.h"
#include "test/support/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const TimePoint now(seconds(1e9));
  if (const auto progress = decode_progress(bytes, now)) {
    test::require(encode(*progress, now) == bytes);
  }
  if (const auto calls = decode_calls(bytes, now)) {
    const std::string again = encode_calls(*calls, now);  // names of algorithms may have changed
    const auto read = decode_calls(again, now);
    test::require(calls->size() <= Recorder::kCalls);
    test::require(again.size() > kMaxCallsBytes || (read && encode_calls(*read, now) == again));
  }
  if (const auto report = decode_report(bytes, now)) {
    for (const RankReport& rank : report->ranks) test::require(report->find(rank.rank) == &rank);
    const Diagnosis diagnosis = diagnose(*report, {.number = 1, .silence = seconds(1)}, now);
    test::require(diagnosis.behind.size() <= report->ranks.size());
    test::require(!status_text("rank 0 of 1", Recorder(), &*report, now).empty());
  }
  return 0;
}
