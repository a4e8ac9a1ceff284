// Messages in device memory: a slot says when all is done that uses it, even where the device takes
// some of the copies of a message and refuses the rest. Devices are emulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/algorithm/families.h"
#include "comm/error.h"
#include "comm/executor/buffers.h"
#include "test/support/device_emulated.h"
#include "test/support/errors.h"

namespace motley {
namespace {

// The second piece of an all-gather of blocks of 5 elements in pieces of at most 3: its chunks are
// 2 elements each, and 3 apart.
class DeviceBuffers : public testing::Test {
 protected:
  static constexpr std::size_t kMessageBytes = 2 * 2 * sizeof(std::int32_t);

  // A copy that nothing orders is under way to the message's second chunk, and what is done with
  // the message waits for `released_`.
  DeviceBuffers() {
    at_.piece = 1;
    at_.slot = staging_.slots().take(1 << 20, buffers_.piece_bytes());
    const Region chunk = buffers_.layout().at(1, 1);
    const View second(at_.data() + chunk.first * sizeof(std::int32_t), chunk.count, DType::kInt32,
                      Memory::kDevice);
    motley::copy(second, ConstView(host_), other_);
    test::enqueue(staging_.to_device(), [this] { return released_; });
  }

  DeviceMessage take() { return {messages_.take(1 << 20, kMessageBytes), kMessageBytes}; }

  template <class Use>
  void expect_slot_is_kept_while_in_use(Use&& use) {
    std::byte* used = nullptr;
    {
      DeviceMessage message = take();
      used = message.slot->data();
      test::expect_error(ErrorCode::kIo, {"nothing orders them"}, [&] { use(message); });
    }
    EXPECT_NE(take().slot->data(), used) << "a copy of it is under way";
    released_ = true;
    synchronize(staging_.to_device());
    synchronize(other_);
    EXPECT_EQ(take().slot->data(), used);
  }

  struct Devices {
    Devices() { test::emulate({}); }
  } devices_;  // before all that is on them
  DeviceBuffer in_{20}, out_{60};
  const Call call_{.kind = CallKind::kAllGather,
                   .in = in_.view(5, DType::kInt32),
                   .out = out_.view(15, DType::kInt32),
                   .direct = true};
  const Shape shape_{.rank = 2, .size = 3};
  const Schedule schedule_ = ring_all_gather(shape_);
  Arena arena_;
  Staging staging_{Memory::kDevice};
  Slots messages_{Memory::kDevice};
  Buffers buffers_{arena_,      &staging_, call_, shape_, schedule_, 3 * sizeof(std::int32_t),
                   Heads::kNone};
  PieceMemory at_;
  const std::vector<std::int32_t> host_ = {1, 2};
  Stream other_;
  bool released_ = false;
};

TEST_F(DeviceBuffers, KeepTheSlotOfAMessageThatIsGatheredInPart) {
  expect_slot_is_kept_while_in_use([this](DeviceMessage& message) {
    buffers_.gather(at_, {.kind = Step::kSend, .first_chunk = 0, .chunk_count = 2}, message);
  });
}

TEST_F(DeviceBuffers, KeepTheSlotOfAMessageThatIsWrittenInPart) {
  expect_slot_is_kept_while_in_use([this](DeviceMessage& message) {
    buffers_.write(at_, {.kind = Step::kRecv, .first_chunk = 0, .chunk_count = 2}, message);
  });
}

}  // namespace
}  // namespace motley
