// comm/executor/agreement.h: finds members of a call that do not make the same one, where its data
// do not travel in messages that would show it.
//
// Each member tells others what it calls, while its data are under way already. Few members tell
// each other, so that who is missing can be named; of many, each tells the next: if not all agree,
// two neighbours do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "comm/executor/call.h"
#include "comm/transport/transport.h"

namespace motley {

class Agreement {
 public:
  static constexpr int kFew = 8;  // members

  // Keeps references.
  Agreement(Transport& transport, const Call& call, const Fingerprint& fingerprint);

  // Tells others; what it hears is received() by `sink`.
  void start(Sink& sink);
  void sent() noexcept { --unsent_; }

  // Two sides of a block that do not have the same count, or of a call.
  struct Conflict {
    int rank;  // that disagrees
    Fingerprint ours;
    Fingerprint theirs;
  };
  // A member, by the cookie of its message, tells what it called.
  std::optional<Conflict> heard(std::uint32_t cookie, const Tag& tag, ConstBytes data);

  // Whether all is said and heard, and nothing in conflict.
  bool complete() const noexcept { return started_ && unsent_ == 0 && silent_ == 0; }
  // The ranks that have not told yet, ascending.
  std::vector<int> awaited() const;

 private:
  ConstBytes counts_for(int member) const noexcept;

  Transport& transport_;
  const Call& call_;
  const Fingerprint& fingerprint_;
  bool started_ = false;
  int unsent_ = 0;
  int silent_ = 0;
  std::vector<char> awaited_;  // by member
};

}  // namespace motley
