// Streams, events and buffers of a device: that copies come in stream order and no other, that
// events mark places and hold streams, and what fails. In the emulator, where work is done late,
// also that a missing wait is seen.
#include "comm/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "comm/error.h"

namespace motley {
namespace {

using testing::Each;

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  }
};

void fill(const View& view, std::int32_t value) {
  for (std::int32_t& x : view.as<std::int32_t>()) x = value;
}

// Looks until it is done.
void wait_for(const Event& event) {
  while (!event.done()) {
  }
}

TEST_F(DeviceTest, CopiesThereAndBackInStreamOrder) {
  for (const std::size_t n : {0, 1, 1000}) {
    std::vector<std::int32_t> in(n), out(n, -1);
    std::iota(in.begin(), in.end(), 5);
    const Stream stream;
    const DeviceBuffer a(n * 4), b(n * 4);
    copy(a.view(n, DType::kInt32), in, stream);
    copy(b.view(n, DType::kInt32), a.view(n, DType::kInt32), stream);
    copy(out, b.view(n, DType::kInt32), stream);
    synchronize(stream);
    EXPECT_EQ(out, in);
  }
}

TEST_F(DeviceTest, TellsDeviceMemoryFromTheHosts) {
  const DeviceBuffer device(100);
  const PinnedBuffer pinned(100);
  const int local = 0;
  const View view = device.view(100, DType::kInt8);
  EXPECT_EQ(view.memory, Memory::kDevice);
  EXPECT_EQ(memory_of(view.data), Memory::kDevice);
  EXPECT_EQ(memory_of(view.data + 99), Memory::kDevice);
  EXPECT_EQ(memory_of(pinned.data()), Memory::kHost);
  EXPECT_EQ(memory_of(&local), Memory::kHost);
  EXPECT_EQ(memory_of(nullptr), Memory::kHost);
}

TEST_F(DeviceTest, HoldsAStreamUntilAnotherIsThere) {
  constexpr std::size_t kCount = 1 << 16;
  const Stream first, second;
  const DeviceBuffer middle(kCount * 4);
  const PinnedBuffer in(kCount * 4), out(kCount * 4);
  for (int round = 1; round <= 20; ++round) {
    fill(in.view(kCount, DType::kInt32), round);
    copy(middle.view(kCount, DType::kInt32), in.view(kCount, DType::kInt32), first);
    Event copied;
    copied.record(first);
    copied.hold(second);
    copy(out.view(kCount, DType::kInt32), middle.view(kCount, DType::kInt32), second);
    synchronize(second);
    EXPECT_THAT(out.view(kCount, DType::kInt32).as<std::int32_t>(), Each(round));
    EXPECT_TRUE(copied.done());
  }
}

TEST_F(DeviceTest, AnEventIsDoneWhenWhatItMarkedIs) {
  Event event;
  EXPECT_TRUE(event.done()) << "it marks nothing";
  const Stream stream;
  const DeviceBuffer device(4096);
  const PinnedBuffer in(4096), out(4096);
  fill(in.view(1024, DType::kInt32), 7);
  copy(device.view(1024, DType::kInt32), in.view(1024, DType::kInt32), stream);
  copy(out.view(1024, DType::kInt32), device.view(1024, DType::kInt32), stream);
  event.record(stream);
  wait_for(event);
  EXPECT_THAT(out.view(1024, DType::kInt32).as<std::int32_t>(), Each(7));
  EXPECT_TRUE(event.done());
}

TEST_F(DeviceTest, WhatIsInAStreamIsDoneThoughItIsDestroyed) {
  const DeviceBuffer device(4);
  const PinnedBuffer in(4), out(4);
  fill(in.view(1, DType::kInt32), 9);
  Event event;
  {
    const Stream stream;
    copy(device.view(1, DType::kInt32), in.view(1, DType::kInt32), stream);
    copy(out.view(1, DType::kInt32), device.view(1, DType::kInt32), stream);
    event.record(stream);
  }
  wait_for(event);
  EXPECT_THAT(out.view(1, DType::kInt32).as<std::int32_t>(), Each(9));
}

TEST_F(DeviceTest, ABufferWaitsForItsDeviceBeforeItGoes) {
  const PinnedBuffer in(4096), out(4096);
  fill(in.view(1024, DType::kInt32), 3);
  const Stream stream;
  {
    const DeviceBuffer device(4096);
    copy(device.view(1024, DType::kInt32), in.view(1024, DType::kInt32), stream);
    copy(out.view(1024, DType::kInt32), device.view(1024, DType::kInt32), stream);
  }
  EXPECT_THAT(out.view(1024, DType::kInt32).as<std::int32_t>(), Each(3));
}

TEST_F(DeviceTest, OwnersMove) {
  Stream a;
  const Stream stream(std::move(a));
  Event b;
  b.record(stream);
  const Event event(std::move(b));
  EXPECT_NO_THROW(wait_for(event));
  DeviceBuffer c(64);
  const DeviceBuffer buffer(std::move(c));
  EXPECT_EQ(buffer.size_bytes(), 64u);
  PinnedBuffer d(64), pinned;
  pinned = std::move(d);
  EXPECT_EQ(pinned.size_bytes(), 64u);
}

TEST_F(DeviceTest, SaysHowMuchMemoryIsMissing) {
  const DeviceMemory memory = device_memory();
  EXPECT_LE(memory.free, memory.total);
  try {
    const DeviceBuffer buffer(memory.total + 1);
    ADD_FAILURE() << "more memory than there is";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(memory.total + 1)));
  }
}

TEST_F(DeviceTest, UsesTheDeviceOfTheScope) {
  const int before = current_device();
  const int last = device_count() - 1;
  {
    const UseDevice use(last);
    EXPECT_EQ(current_device(), last);
    const DeviceBuffer buffer(16);
    EXPECT_EQ(memory_of(buffer.view(16, DType::kInt8).data), Memory::kDevice);
  }
  EXPECT_EQ(current_device(), before);
  EXPECT_THROW(UseDevice(last + 1), Error);
}

TEST(NoGpu, IsSaid) {
  if (device_count() > 0) GTEST_SKIP() << "there is a GPU";
  try {
    const Stream stream;
    ADD_FAILURE() << "a stream of nothing";
  } catch (const Error& error) {  // kIo: CUDA without a driver, or without a device
    EXPECT_TRUE(error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr("CUDA"));
  }
}

}  // namespace
}  // namespace motley
