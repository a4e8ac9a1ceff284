// How many bytes may be on the way, and which messages go by rendezvous, on links of every kind.
#include "comm/transport/ucx_link.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint64_t kMiB = 1 << 20;

UcxLimits limits(bool remote_memory = false, std::int64_t rendezvous = -1) {
  Options options;
  options.ucx_rendezvous = rendezvous;
  return UcxLimits::of(options, remote_memory);
}

TEST(UcxLink, TheWindowHoldsTwiceWhatARoundTripTakes) {
  // 1 GB/s over 2 ms there and back: 4 MB.
  const Link far{.latency = milliseconds(1), .bytes_per_second = 1e9};
  EXPECT_EQ(use_of(far, limits()).window, 4'000'000u);
  const Link near{.latency = microseconds(5), .bytes_per_second = 1e9};
  EXPECT_EQ(use_of(near, limits()).window, kMiB);
  const Link moon{.latency = seconds(1.3), .bytes_per_second = 1e9};
  EXPECT_EQ(use_of(moon, limits()).window, Options().ucx_window);
  EXPECT_EQ(use_unknown(limits()).window, 8 * kMiB);
}

// However small the option: a window without room for a message would be a call without end.
TEST(UcxLink, TheWindowHasRoomForTheLargestMessages) {
  Options options;
  options.segment_bytes = 16 * kMiB;
  options.ucx_window = 1;
  const UcxLimits large = UcxLimits::of(options, false);
  for (const UcxLinkUse& use : {use_unknown(large), use_of(Link{}, large)}) {
    EXPECT_EQ(use.window, 64 * kMiB);
  }
}

TEST(UcxLink, RendezvousIsForTransfersThatTakeMuchLongerThanItsTrips) {
  // 12.5 GB/s, 2 us a trip: three trips are 6 us, in which 75 kB go.
  const Link fast{.latency = microseconds(2), .bytes_per_second = 12.5e9};
  EXPECT_EQ(use_of(fast, limits(true)).rendezvous_from, 750'000u);
  EXPECT_EQ(use_of(fast, limits(false)).rendezvous_from, UcxLinkUse::kNever);
  EXPECT_EQ(use_unknown(limits(true)).rendezvous_from, UcxLinkUse::kNever);
}

TEST(UcxLink, TheUserHasTheLastWordOnRendezvous) {
  for (const bool remote_memory : {false, true}) {
    EXPECT_EQ(use_of(Link{}, limits(remote_memory, 0)).rendezvous_from, 0u);
    EXPECT_EQ(use_of(Link{}, limits(remote_memory, 5000)).rendezvous_from, 5000u);
    EXPECT_EQ(use_unknown(limits(remote_memory, 5000)).rendezvous_from, 5000u);
  }
}

}  // namespace
}  // namespace motley
