// comm/transport/seal.h: proves that who sends holds the job's token, without sending the token.
//
//   const Sealer sealer(options.token);
//   header.seal = sealer.seal(receivers_session, my_rank);   // the receiver computes the same
//
// A seal is SipHash-2-4 (Aumasson and Bernstein, 2012) under a key made from the token. It keeps
// strangers out, not those who can read the job's messages: who sees a seal can repeat it.
#pragma once

#include <cstdint>
#include <string_view>

namespace motley {

class Sealer {
 public:
  explicit Sealer(std::string_view token) noexcept;
  std::uint64_t seal(std::uint64_t session, int rank) const noexcept;

 private:
  std::uint64_t key_[2];
};

// Takes as long wherever the two differ.
inline bool same_seal(std::uint64_t a, std::uint64_t b) noexcept { return (a ^ b) == 0; }

// The hash itself, for its test.
std::uint64_t siphash(const std::uint64_t (&key)[2], std::string_view bytes) noexcept;

}  // namespace motley
