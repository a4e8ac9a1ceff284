// The rate of a stream is found whatever a rate limit lets pass at once, and whenever the receiver
// was kept from its core.
#include "comm/topology/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace motley {
namespace {

using std::chrono::microseconds;

constexpr int kMessages = 32;

// Message i comes after so many us from the start, 100 us after the one before it.
std::vector<TimePoint> arrivals(int at_once) {
  std::vector<TimePoint> times;
  for (int i = 0; i < kMessages; ++i)
    times.push_back(TimePoint{} + microseconds(100) * std::max(1, i - at_once));
  return times;
}

// The receiver sees nothing between `from` and `to` us.
void look_away(std::vector<TimePoint>& times, int from, int to) {
  for (TimePoint& time : times) {
    if (time > TimePoint{} + microseconds(from))
      time = std::max(time, TimePoint{} + microseconds(to));
  }
}

TEST(Arrivals, AreCountedAfterWhatPassedAtOnce) {
  EXPECT_EQ(time_between(arrivals(0), TimePoint{}), 1e5);
  EXPECT_EQ(time_between(arrivals(kMessages / 3), TimePoint{}), 1e5);
}

TEST(Arrivals, AreCountedWhereTheReceiverLookedInTime) {
  std::vector<TimePoint> times = arrivals(0);
  look_away(times, 1100, 1500);
  look_away(times, 2000, 2300);
  look_away(times, 2600, 2900);
  EXPECT_EQ(time_between(times, TimePoint{}), 1e5);
}

TEST(Arrivals, ThatWereAllSeenAtOnceSayHowLongAllTook) {
  std::vector<TimePoint> times = arrivals(0);
  look_away(times, 0, 100 * kMessages);
  EXPECT_EQ(time_between(times, TimePoint{}), 1e5);
}

TEST(Median, IsTheLowerOneOfTwo) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2);
  EXPECT_EQ(median({}), 0);
}

}  // namespace
}  // namespace motley
