// What a transport tells of messages that belong to another call than the one under way here.
#include "comm/transport/matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test/support/transports.h"

namespace motley::test {
namespace {

using testing::ElementsAre;

// Told at once, whether the message was asked for or came before the call was opened. One with the
// same fingerprint is no news.
TEST(Matcher, TellsOfMessagesOfAnotherCall) {
  NotingSink ours, early;
  const Tag mine = tag_of(1);
  Tag other = tag_of(1, 2);
  other.fingerprint.kind = CallKind::kBroadcast;
  Matcher matcher;
  matcher.open(ours, mine.call, mine.fingerprint);
  matcher.arrived(2, tag_of(1, 5), ConstBytes());
  matcher.arrived(2, tag_of(2), ConstBytes());
  EXPECT_THAT(ours.disagreements, ElementsAre());
  matcher.arrived(0, other, pattern(10, 1));
  EXPECT_THAT(ours.disagreements, ElementsAre(0));
  matcher.cancel(ours, mine.call);
  matcher.arrived(0, other, ConstBytes());
  EXPECT_THAT(ours.disagreements, ElementsAre(0)) << "its call is over";

  Tag block = tag_of(4), longer = tag_of(4, 1);  // each message has a count of its own
  block.fingerprint.kind = longer.fingerprint.kind = CallKind::kAllToAllV;
  longer.fingerprint.count += 5;
  matcher.open(ours, block.call, block.fingerprint);
  matcher.arrived(0, longer, ConstBytes());
  EXPECT_THAT(ours.disagreements, ElementsAre(0));

  matcher.arrived(0, {.call = block.call, .piece = Tag::kQuestion, .fingerprint = {}},
                  ConstBytes());
  EXPECT_THAT(ours.disagreements, ElementsAre(0, 0)) << "asked by one in another call";

  Matcher later;
  later.arrived(3, other, ConstBytes());
  later.open(early, mine.call, mine.fingerprint);
  EXPECT_THAT(early.disagreements, ElementsAre(3));
  EXPECT_TRUE(ours.untouched() && early.untouched());
}

// Notices need not be asked for. What comes late for a call that is complete is one, too.
TEST(Matcher, HandsNoticesToWhoListens) {
  NotingSink notices, call;
  const auto text = pattern(50, 1);
  Matcher matcher;
  matcher.arrived(1, {.call = tag_of(7).call, .piece = Tag::kNotice}, text);  // nobody listens
  matcher.listen(notices);
  EXPECT_TRUE(notices.untouched());
  matcher.arrived(1, {.call = tag_of(7).call, .piece = Tag::kNotice}, text);
  ASSERT_EQ(notices.receives.size(), 1u);
  EXPECT_EQ(notices.receives[0].cookie, 1u) << "the sender";
  EXPECT_EQ(notices.receives[0].tag.call.number, 7u);
  EXPECT_EQ(notices.receives[0].data, text);
  matcher.open(call, tag_of(3).call, tag_of(3).fingerprint);
  matcher.close(tag_of(3).call);
  Tag late = tag_of(3);
  late.fingerprint.count = 99;
  matcher.arrived(2, late, ConstBytes());
  EXPECT_THAT(notices.disagreements, ElementsAre(2));
  EXPECT_TRUE(call.untouched() && call.disagreements.empty());
}

}  // namespace
}  // namespace motley::test
