// comm/transport/shm_team.h: collectives of ranks that map each other's memory.
//
// Every member shows its part on its board (shm_board.h), finds the others' and takes what it
// needs. A rank writes to its own memory only, but for results of an all-reduce or reduce, and for
// an all-to-all in place: those of buffers from allocate() are stored right where they belong, in
// the other members' buffers, and those of two members that reduce others in the slots that the
// pieces came from. A member that gives up says so, and keeps that memory from whoever does not
// stop writing to it.
//
// Three ways, by size and by where the buffers are:
//   at once     up to some KiB, unless blocks vary: each shows all it has, in the line of its key,
//               beside it or in a slot, and reduces or picks from what the others show. Up to 1 KiB
//               one transfer between cores.
//   in place    buffers from allocate(): read, and written, where they are.
//   directly    other memory, where the kernel lets ranks read it from each other's processes: in
//               the first calls of a size, which then need no slots.
//   in pieces   other memory: each lays out a piece at a time in slots of its heap, two pieces
//               deep, while the others take the piece before.
// Reductions go in the order of the members, each element in one place: same bits everywhere.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "comm/kernel/combine.h"
#include "comm/transport/core_hop.h"
#include "comm/transport/shm_heap.h"
#include "comm/transport/shm_run.h"
#include "comm/transport/slot_stores.h"
#include "comm/transport/team.h"

namespace motley {

class ShmTeam final : public Team {
 public:
  struct Abilities {     // the same at all ranks
    int cores = 1;       // that they share, at most one for each
    bool spins = false;  // ranks have cores of their own: looking for a while costs nobody anything
    bool reads_private = false;  // ranks can read what the others do not share
  };

  // `segments`: by rank, null at the own one, whose memory is `heap`, and at ranks of other hosts.
  ShmTeam(int rank, std::shared_ptr<ShmHeap> heap, const std::vector<const ShmSegment*>& segments,
          Abilities abilities, Clock& clock);

  bool runs(CallKind kind, std::size_t bytes, int members) const noexcept override {
    return members > 1 && way_of(kind, bytes, members).has_value();
  }
  Duration price(CallKind kind, std::size_t bytes, const Topology& among) const override;
  TeamRun& begin(const TeamCall& call) override;
  bool advance(TeamRun& run) override;
  void end(TeamRun& run, const Error* why) noexcept override;
  SharedBuffer allocate(std::size_t bytes) override;

  // Whether a call under way could move.
  bool ready() const noexcept;
  // Whether a call waits for a seat, of which nobody tells: look again soon.
  bool starved() const noexcept;
  void lose(int rank) noexcept { peer(rank).lost = true; }

 private:
  static constexpr int kDTypes = static_cast<int>(DType::kInt64) + 1;
  static constexpr int kOps = static_cast<int>(ReduceOp::kWeightedSum) + 1;

  struct Peer {
    ShmBoard* board = nullptr;
    Bytes heap;
    Doorbell* doorbell = nullptr;  // null: ourselves
    ShmPeerMemory rest;            // what it does not share
    std::uint32_t strays = 0;      // its count when we last searched the whole board
    std::vector<int> astray;       // the seats that we then found not to be where one looks first
    bool lost = false;
    // Ticket of the call that we last found at each of its seats: it is not found again.
    std::array<std::uint32_t, ShmBoard::kSeats> used{};
  };
  struct Slots {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  struct Target {  // where results go
    std::byte* to = nullptr;
    bool around = false;  // the caches
  };
  struct Seat {  // one of ours
    enum State : std::uint8_t { kFree, kBusy, kOver, kGivenUp };
    State state = kFree;
    std::uint64_t key = 0;
    TimePoint given_up{};
    Slots slots;
    std::vector<ShmRun::Member> members;
  };

  Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(int rank) const noexcept { return peers_[static_cast<std::size_t>(rank)]; }
  Seat& seat(const ShmRun& run) noexcept { return seats_[static_cast<std::size_t>(run.seat)]; }

  // --- seats (shm_team.cc, shm_find.cc)
  // -----------------------------------------------------------
  ShmRun& new_run(const TeamCall& call);
  bool claim(ShmRun& run);
  void show(std::uint64_t key, int at, const TeamCall& call, ConstBytes line) noexcept;
  void look_where_we_are() noexcept;
  bool find_near(ShmRun& run);
  bool find_all(ShmRun& run);
  bool find(ShmRun& run, int index);
  bool find_oldest(ShmRun& run, int index);
  void search(Peer& peer);
  bool disagrees(ShmRun& run, int index);
  bool take(ShmRun& run, int index, int at) noexcept;
  bool disagrees(ShmRun& run, int index, int at) noexcept;
  void sweep() noexcept;
  // The ticket of the call that the member's seat of this call is busy with, if any.
  std::uint32_t busy_with(const ShmRun::Member& member) const noexcept {
    return peer(member.rank).board->busy[member.at].load(std::memory_order_acquire);
  }
  bool over_for(const Seat& mine, const ShmRun::Member& member) const noexcept;
  int blocker(const Seat& mine) const noexcept;
  void keep_slots(ShmRun& run, std::size_t bytes);
  bool move(ShmRun& run);
  void look_for_a_while(ShmRun& run);
  void pause_between_looks(const Group& group, int look) noexcept;
  void hop_away() noexcept;
  void tell(ShmRun& run) noexcept;
  void tell(const Group& group) const noexcept;
  void ring(const Group& group) const noexcept;
  bool ready(const ShmRun& run) const noexcept;
  const Combine& combine_of(const Fingerprint& call) const noexcept {
    return combines_[static_cast<std::size_t>(call.dtype) * kOps +
                     static_cast<std::size_t>(call.op)];
  }
  ShmSeat& own(const ShmRun& run) noexcept {
    return board_->seats[static_cast<std::size_t>(run.seat)];
  }

  // --- the ways (shm_pieces.cc, shm_at_once.cc, shm_reduce.cc, shm_exchange.cc, shm_swap.cc) -----
  using Count = std::atomic<std::uint32_t> ShmSeat::*;

  // More than any block has.
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;

  static std::optional<ShmRun::Way> way_of(CallKind kind, std::size_t bytes, int members) noexcept;
  static void plan_reduction(ShmRun& run);
  void show_offer(ShmRun& run);
  static void take_offers(ShmRun& run);
  [[noreturn]] void throw_broken(const ShmRun& run, int index, std::uint64_t offset,
                                 std::uint64_t bytes) const;
  std::byte* heap_at(const ShmRun& run, int index, std::uint64_t offset, std::uint64_t bytes) const;
  std::byte* slots_of(const ShmRun& run, int index, std::size_t bytes) const;
  bool still_there(ShmRun& run, int index) const noexcept;
  void wait_in_vain(ShmRun& run, int index) const noexcept;
  bool reads_directly(const ShmRun& run) noexcept;
  bool read_private(ShmRun& run, int index, std::byte* to, std::uint64_t from,
                    std::size_t bytes) const;
  bool has(ShmRun& run, int index, Count count, std::uint32_t value) const noexcept;
  bool all_have(ShmRun& run, Count count, std::uint32_t value) const noexcept;
  void publish(ShmRun& run, Count count, std::uint32_t value) noexcept;
  bool writers_stop(const ShmRun& run) const noexcept;
  static void copy_out(const ShmRun& run, std::byte* to, const std::byte* from, std::size_t bytes);
  void copy_from_slots(const ShmRun& run, std::byte* to, const std::byte* from,
                       std::size_t bytes) const;

  bool show_early(std::uint64_t key, int hint, const TeamCall& call) noexcept;
  bool over_early(std::uint64_t key, int hint, const TeamCall& call);
  std::uint32_t ticket_shown(int rank, std::uint64_t key, int hint) const noexcept;
  void fetch_ahead(const TeamCall& what, int hint) const noexcept;
  void make_room_after(int hint) noexcept;
  void show_at_once(ShmRun& run);
  bool at_once(ShmRun& run);
  const std::byte* shown_at_once(const ShmRun& run, int index, std::size_t bytes) const;
  template <class Shown>
  void finish_at_once(const TeamCall& what, int me, const Shown& shown);

  bool reduce(ShmRun& run);
  bool reduce_in_pieces(ShmRun& run);
  bool give_to_reduce(ShmRun& run);
  bool reduce_piece(ShmRun& run, std::uint32_t k);
  void prepare_sources(const ShmRun& run);
  bool reduces_in_place(const ShmRun& run) const noexcept;
  bool reduce_in_place(ShmRun& run);
  bool may_write(ShmRun& run);
  void reduce_part(ShmRun& run, std::size_t part);
  void find_targets(const ShmRun& run, std::size_t part);
  static std::size_t own_block(const ShmRun& run) noexcept;

  static void plan_exchange(ShmRun& run);
  void show_table(ShmRun& run);
  bool exchange(ShmRun& run);
  bool find_sources(ShmRun& run);
  bool give_blocks(ShmRun& run);
  bool take_block(ShmRun& run, int from);

  static bool replaces(const ShmRun& run, const ShmRun::Offer& offer) noexcept;
  static bool swaps(const ShmRun& run) noexcept;
  bool swap(ShmRun& run);
  void swap_part(ShmRun& run);

  const int rank_;
  const bool spins_;
  const bool reads_private_;
  Clock& clock_;
  std::shared_ptr<ShmHeap> heap_;
  ShmBoard* board_;
  std::vector<Peer> peers_;
  std::array<Seat, ShmBoard::kSeats> seats_;
  std::uint32_t tickets_ = 0;
  CoreHop hop_;
  SlotStores stores_;
  struct : TeamRun {
  } over_;                      // stands for all calls of which nothing is noted: they are over
  std::deque<ShmRun> runs_;     // all there ever were
  std::vector<ShmRun*> spare_;  // not in use
  std::vector<ShmRun*> under_way_;
  std::array<std::vector<std::byte*>, 64> slots_;  // free ones, by the logarithm of their size
  std::array<int, 64> slots_made_{};
  std::array<int, 64> direct_calls_{};  // that needed no slots, by the same of what they would need
  std::vector<const std::byte*> sources_;  // of a reduction; kept for its memory
  std::vector<double> weights_;            // of those
  std::vector<Target> targets_;            // of a reduction in place
  std::vector<Combine> combines_;          // by dtype and operation
};

// The seat `at` shows the key of the call: it is the one unless it was used by an earlier call of
// the same name. Its owner may be writing the next one there: then the key is gone, or complete.
inline bool ShmTeam::take(ShmRun& run, int index, int at) noexcept {
  ShmRun::Member& member = run.members[static_cast<std::size_t>(index)];
  Peer& it = peer(member.rank);
  ShmSeat& shown = it.board->seats[at];
  const std::uint32_t ticket = shown.ticket.load(std::memory_order_acquire);
  std::uint32_t& used = it.used[static_cast<std::size_t>(at)];
  if (ticket == used || shown.key.load(std::memory_order_acquire) != run.key) return false;
  used = ticket;
  member.at = at;
  member.ticket = ticket;
  member.seat = &shown;
  return true;
}

}  // namespace motley
