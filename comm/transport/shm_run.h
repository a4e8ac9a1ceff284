// comm/transport/shm_run.h: what a rank knows of one collective of its team under way.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/transport/shm_board.h"
#include "comm/transport/team.h"

namespace motley {

struct ShmRun final : TeamRun {
  enum class Way : std::uint8_t { kAtOnce, kReduce, kExchange };
  struct Member {
    int rank = -1;
    int at = -1;               // its seat for this call; -1: not found yet
    std::uint32_t ticket = 0;  // of the call there
    ShmSeat* seat = nullptr;
  };
  // What a member shows in its line where it does not show all it has: where its buffers lie in its
  // heap.
  struct Offer {
    static constexpr std::uint64_t kPrivate = ~std::uint64_t{0};  // nowhere: others cannot see it
    std::uint64_t in = kPrivate;
    std::uint64_t out = kPrivate;
  };

  TeamCall call;
  std::uint64_t key = 0;
  int me = 0;         // index among the members
  int size = 0;       // number of members
  int hint = 0;       // the seat where members look first
  int seat = -1;      // ours; -1: none yet
  int found = 0;      // members [0, found) have been found
  bool news = false;  // something was shown since the others were rung
  Way way = Way::kAtOnce;
  std::vector<Member> members;               // by index
  std::byte line[ShmSeat::kLineBytes] = {};  // what is shown beside the key

  // What it waits for, where that is a count: until awaited >= value.
  const std::atomic<std::uint32_t>* awaited = nullptr;
  std::uint32_t value = 0;

  // Kinds that go on for a while (shm_reduce.cc, shm_exchange.cc).
  Offer offer;
  bool decided = false;  // all members are found, and `in_place` is set
  bool in_place = false;
  std::size_t block = 0;       // of each member, in bytes; the last may be shorter
  std::size_t piece = 0;       // of a block, in bytes
  std::uint32_t pieces = 0;    // that a block has
  std::uint32_t given = 0;     // pieces laid out for the others
  std::uint32_t done = 0;      // pieces all done with
  int step = 0;                // in the piece under way: members done with
  std::byte* slots = nullptr;  // where pieces are laid out
  std::size_t progress = 0;    // in place: bytes of the own block done with
};

}  // namespace motley
