// A rank under messages that claim to be the controller's, while it makes a dump: it lives, says
// only what can be encoded, and loses each rank at most once.
#include <set>

#include "comm/control/client_core.h"
#include "comm/control/dump_maker.h"
#include "test/support/fuzz.h"

// An input is a list of messages, each after two bytes of length and one of time.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  TimePoint now(seconds(100));
  const ClientConfig config{.rank = 1, .size = 4, .token = "token"};
  ClientCore core(config, now);
  DumpMaker dumps(core, config);
  dumps.begin({.folder = ".", .name = "fuzz", .why = "", .rank = 1, .size = 4}, {}, now, {});
  std::set<int> lost;
  core.request({.type = MessageType::kReady, .count = 2}, now);
  core.request({.type = MessageType::kGet, .key = "key"}, now);
  ConstBytes rest(reinterpret_cast<const std::byte*>(data), size);
  while (rest.size() > 3) {
    const std::size_t wanted =
        std::to_integer<std::size_t>(rest[0]) + (std::to_integer<std::size_t>(rest[1]) << 8);
    now += std::chrono::milliseconds(std::to_integer<int>(rest[2]));
    const ConstBytes bytes = rest.subspan(3, std::min(wanted, rest.size() - 3));
    rest = rest.subspan(3 + bytes.size());
    if (const auto message = decode(bytes)) core.on_message(*message, now);
    core.on_time(now);
    dumps.on_time(now);
    for (const Message& told : core.take_told()) {
      if (told.type == MessageType::kTell) dumps.answer(told, {}, now);
      if (told.type == MessageType::kCalls) dumps.take(told, now);
    }
    for (const Message& message : core.take_output()) {
      test::require(decode(encode(message)) == message);
    }
    for (const ClientCore::Loss& loss : core.take_losses()) {
      test::require(loss.rank >= 0 && loss.rank < 4 && lost.insert(loss.rank).second);
    }
  }
  return 0;
}
