// Seals prove the token: equal tokens give equal seals, and nothing else does.
#include "comm/transport/seal.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace motley {
namespace {

// The vectors that the authors of SipHash-2-4 publish: key 00 01 … 0f, messages 00 01 … of 0 to 15
// bytes; here those of 0, 1, 8 and 15 bytes.
TEST(SipHash, GivesThePublishedValues) {
  const std::uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string message;
  for (int i = 0; i < 15; ++i) message += static_cast<char>(i);
  EXPECT_EQ(siphash(key, ""), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(siphash(key, message.substr(0, 1)), 0x74f839c593dc67fdu);
  EXPECT_EQ(siphash(key, message.substr(0, 8)), 0x93f5f5799a932462u);
  EXPECT_EQ(siphash(key, message), 0xa129ca6149be45e5u);
}

TEST(Seal, TellsTokensSessionsAndRanksApart) {
  EXPECT_EQ(Sealer("secret").seal(1, 2), Sealer("secret").seal(1, 2));
  std::set<std::uint64_t> seals;
  for (const char* token : {"", "secret", "Secret", "secret "}) {
    for (const std::uint64_t session : {0, 1, 2}) {
      for (const int rank : {0, 1, 2}) seals.insert(Sealer(token).seal(session, rank));
    }
  }
  EXPECT_EQ(seals.size(), 4u * 3 * 3);
}

}  // namespace
}  // namespace motley
