#include "comm/transport/seal.h"

#include <bit>
#include <cstring>

namespace motley {
namespace {

// Any two that differ: the two halves of the key are two hashes of the token.
constexpr std::uint64_t kFirstHalf[2] = {0x6d6f746c65792031, 0};
constexpr std::uint64_t kSecondHalf[2] = {0x6d6f746c65792032, 0};

struct SipState {
  std::uint64_t v0, v1, v2, v3;

  void rounds(int n) noexcept {
    for (; n > 0; --n) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1;
      v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  }
  void take(std::uint64_t word) noexcept {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
};

}  // namespace

std::uint64_t siphash(const std::uint64_t (&key)[2], std::string_view bytes) noexcept {
  SipState state{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                 key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
  std::uint64_t last = std::uint64_t{bytes.size()} << 56;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    state.take(word);
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    last |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  state.take(last);
  state.v2 ^= 0xff;
  state.rounds(4);
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

Sealer::Sealer(std::string_view token) noexcept
    : key_{siphash(kFirstHalf, token), siphash(kSecondHalf, token)} {}

std::uint64_t Sealer::seal(std::uint64_t session, int rank) const noexcept {
  char bytes[12];
  std::memcpy(bytes, &session, 8);
  std::memcpy(bytes + 8, &rank, 4);
  return siphash(key_, {bytes, sizeof bytes});
}

}  // namespace motley
