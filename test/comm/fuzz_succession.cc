// A controller that stands by, or for which others do, under questions and answers of anybody: what
// comes without the job's token changes nothing, but that one for which it stands by may refuse it;
// what it says can be encoded, and it never serves before those before it were silent for a lease.
#include <fuzzer/FuzzedDataProvider.h>

#include <string>
#include <vector>

#include "comm/control/succession.h"
#include "test/support/fuzz.h"

namespace motley::test {
namespace {

constexpr Duration kLease = seconds(1);

Message message_from(FuzzedDataProvider& in) {
  return {.type = in.ConsumeBool() ? MessageType::kSuccession : MessageType::kRefused,
          .count = in.ConsumeIntegral<std::int32_t>(),
          .number = in.ConsumeBool() ? in.ConsumeIntegral<std::int64_t>()
                                     : in.ConsumeIntegralInRange<std::int64_t>(0, 3) << 16,
          .value = in.ConsumeBool() ? "token" : in.ConsumeRandomLengthString(8)};
}

void check(const Message& message) {
  require(decode(encode(message)) == message);
  require(message.type == MessageType::kSuccession || message.type == MessageType::kRefused);
}

}  // namespace
}  // namespace motley::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  FuzzedDataProvider in(data, size);
  TimePoint now(seconds(100)), heard = now;
  const std::vector<std::string> before(in.ConsumeIntegralInRange<std::size_t>(0, 3), "tcp://a:1");
  Succession one({.before = before, .token = "token", .lease = test::kLease}, now);
  while (in.remaining_bytes() > 0) {
    now += std::chrono::milliseconds(in.ConsumeIntegralInRange<int>(0, 1'500));
    const auto earlier = one.state();
    one.on_time(now);
    const bool begins = earlier != Succession::State::kServing && one.serves();
    test::require(!begins || now - heard >= test::kLease);
    if (const auto question = one.take_question()) test::check(*question);
    const Message message = test::message_from(in);
    const bool known = message.value == "token";
    const auto state = one.state();
    if (in.ConsumeBool() || before.empty()) {
      const Message answer = one.on_question(message);
      test::check(answer);
      test::require(known || (answer.type == MessageType::kRefused && one.state() == state));
    } else {
      one.on_answer(in.ConsumeIntegralInRange<std::size_t>(0, before.size() - 1), message, now);
      const bool refused = message.type == MessageType::kRefused;
      test::require(known || refused || one.state() == state);
      if (one.state() == Succession::State::kStandingBy && known) heard = now;
    }
    if (one.serves() && in.ConsumeBool()) {
      one.serves_in(in.ConsumeIntegral<std::uint32_t>(), in.ConsumeIntegralInRange<int>(0, 3));
    }
    test::require(one.failure().has_value() == (one.state() == Succession::State::kEnded));
    test::require(!before.empty() || one.serves() || one.failure());
  }
  return 0;
}
