// The controller under messages of anybody: it admits only who has the token, answers only what can
// be encoded, and lives. An input is a list of steps: who sends, how much time passes, and a
// message, field by field.
#include <fuzzer/FuzzedDataProvider.h>

#include "comm/control/controller_core.h"
#include "test/support/fuzz.h"

namespace motley::test {
namespace {

constexpr int kSize = 3;

Message message_from(FuzzedDataProvider& in) {
  Message message;
  message.type = static_cast<MessageType>(
      in.ConsumeIntegralInRange<int>(0, static_cast<int>(MessageType::kFenced)));
  message.epoch = in.ConsumeIntegralInRange<std::uint32_t>(0, 2);
  message.seq = in.ConsumeIntegralInRange<std::uint64_t>(0, 8);
  message.rank = in.ConsumeIntegralInRange<std::int32_t>(-2, kSize + 1);
  message.count = in.ConsumeIntegralInRange<std::int32_t>(-1, 5);
  message.number = in.ConsumeBool() ? in.ConsumeIntegral<std::int64_t>()
                                    : in.ConsumeIntegralInRange<std::int64_t>(-1, 4);
  message.tag.id = in.ConsumeBool() ? GroupTag::kControllerBit | in.ConsumeIntegral<std::uint8_t>()
                                    : in.ConsumeIntegral<std::uint64_t>();
  message.tag.epoch = in.ConsumeIntegralInRange<std::uint32_t>(0, 2);
  message.tag.attempt = in.ConsumeIntegralInRange<std::uint32_t>(0, 3);
  for (int i = in.ConsumeIntegralInRange<int>(0, 4); i > 0; --i) {
    message.ranks.push_back(in.ConsumeIntegral<std::int32_t>());
  }
  message.key = in.ConsumeRandomLengthString(8);
  message.value = in.ConsumeBool() ? "token" : in.ConsumeRandomLengthString(200);
  return message;
}

}  // namespace
}  // namespace motley::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  FuzzedDataProvider in(data, size);
  TimePoint now(seconds(100));
  ControllerCore core({.size = test::kSize, .token = "token"}, now);
  int had_token = 0;
  while (in.remaining_bytes() > 0) {
    now += std::chrono::milliseconds(in.ConsumeIntegralInRange<int>(0, 400));
    core.on_time(now);
    const std::string from = in.ConsumeRandomLengthString(2);
    const Message message = test::message_from(in);
    if (message.type == MessageType::kHello && message.value == "token") ++had_token;
    core.on_message(from, message, now);
    if (in.ConsumeBool()) core.report_lost(in.ConsumeIntegralInRange<int>(-1, test::kSize), "gone");
    for (const ControllerCore::Output& output : core.take_output()) {
      const auto bytes = encode(output.message);
      const auto again = decode(bytes);
      test::require(again && *again == output.message);
    }
    test::require(core.joined() <= had_token && core.joined() <= test::kSize);
  }
  return 0;
}
