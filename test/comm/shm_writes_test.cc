// Members write to each other's memory: two of a reduction to slots, and all to buffers in place.
// That is kept from a member that does not stop writing to it, and nobody writes to that of one
// that has given up. One member is a team, the other a board and a heap that a test writes to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/error.h"
#include "comm/transport/shm_team.h"
#include "test/support/hasty_clock.h"

namespace motley::test {
namespace {

using testing::Each;

constexpr std::size_t kHeap = 4 << 20;
constexpr std::size_t kCount = 64 << 10;  // of floats: a piece for each member

class ShmWrites : public testing::Test {
 protected:
  ShmWrites()
      : plan_{.rank = 1, .size = 2, .payload_bytes = 64},
        peer_(ShmSegment::create(plan_, kHeap)),
        theirs_(ShmSegment::open(peer_.address(), plan_)),
        heap_(std::make_shared<ShmHeap>(ShmSegment::create(own_plan_, kHeap))),
        team_(0, heap_, {nullptr, &theirs_}, {.cores = 2, .spins = false, .reads_private = false},
              clock_) {}

  // The next all-reduce, in which the peer shows what it gives, `theirs`, and we begin.
  TeamRun& begin(float theirs, std::uint32_t given = 1) {
    std::fill_n(laid_out(), kCount / 2, theirs);
    return begin(CallKind::kAllReduce, in_, out_, {}, given);
  }
  TeamRun& begin(CallKind kind, ConstView in, View out, const ShmRun::Offer& offer,
                 std::uint32_t given) {
    call_ = {.id = {group_.tag(), group_.next_call()},
             .fingerprint = {.count = kCount,
                             .kind = kind,
                             .dtype = DType::kFloat32,
                             .op = ReduceOp::kSum},
             .group = &group_,
             .in = in,
             .out = out};
    std::memcpy(seat().line, &offer, sizeof(offer));
    seat().ticket = ++ticket_;
    seat().given = given;
    seat().taken = seat().writes = 0;
    seat().slots = 0;
    peer_.board().busy[hint()] = ticket_;
    seat().key = key();
    return team_.begin(call_);
  }
  void end(TeamRun& run) {
    const Error late(ErrorCode::kTimeout, "late", {1});
    team_.end(run, &late);
    peer_.board().busy[hint()] = 0;
  }
  // Where the team has laid out its piece.
  std::uint64_t slots() { return heap_->segment().board().seats[hint()].slots; }

  int hint() const { return seat_hint(hash(call_.id.group), call_.id.number); }
  std::uint64_t key() const {
    return key_of(hash(call_.id.group), call_.id.number, call_.fingerprint);
  }
  ShmSeat& seat() { return peer_.board().seats[hint()]; }
  float* laid_out() { return reinterpret_cast<float*>(peer_.heap().data()); }

  ShmSegment::Plan own_plan_{.rank = 0, .size = 2, .payload_bytes = 64};
  ShmSegment::Plan plan_;
  ShmSegment peer_;    // as its owner maps it
  ShmSegment theirs_;  // as the team does
  std::shared_ptr<ShmHeap> heap_;
  HastyClock clock_;
  ShmTeam team_;
  Group group_{{0, 1}, {.id = 9}};
  TeamCall call_;
  std::vector<float> in_ = std::vector<float>(kCount, 1), out_ = std::vector<float>(kCount);
  std::uint32_t ticket_ = 0;
};

TEST_F(ShmWrites, ResultsGoWhereThePieceWasLaidOut) {
  TeamRun& run = begin(2);
  EXPECT_THAT(std::span(laid_out(), kCount / 2), Each(3));
  EXPECT_EQ(heap_->segment().board().seats[hint()].writes, 0u);
  std::fill_n(reinterpret_cast<float*>(heap_->base() + slots()), kCount / 2, 5.f);
  seat().taken = 1;
  team_.advance(run);
  EXPECT_EQ(run.state, TeamRun::State::kDone);
  EXPECT_THAT(std::span(out_).first(kCount / 2), Each(3));
  EXPECT_THAT(std::span(out_).last(kCount / 2), Each(5));
  end(run);
}

TEST_F(ShmWrites, SlotsAreUsedAgainOnceNobodyWritesToThem) {
  std::vector<std::uint64_t> used;
  for (int i = 0; i < 2; ++i) {
    TeamRun& run = begin(2);
    used.push_back(slots());
    end(run);
  }
  EXPECT_EQ(used[0], used[1]);
}

TEST_F(ShmWrites, SlotsAreKeptFromAMemberThatDoesNotStopWriting) {
  for (const bool lost : {false, true}) {
    TeamRun& run = begin(2);
    const std::uint64_t before = slots();
    seat().writes = 1;
    if (lost) team_.lose(1);
    end(run);
    seat().writes = 0;
    TeamRun& next = begin(2);
    EXPECT_NE(slots(), before) << (lost ? "lost" : "stopped");
    end(next);
  }
}

TEST_F(ShmWrites, BuffersInPlaceAreKeptFromAMemberThatDoesNotStopWriting) {
  const ShmSegment as_seen = ShmSegment::open(heap_->segment().address(), own_plan_);
  for (const CallKind kind : {CallKind::kAllReduce, CallKind::kAllToAll}) {
    const SharedBuffer buffer = team_.allocate(kCount * sizeof(float));
    const std::span<float> values = buffer.as<float>();
    const auto at = reinterpret_cast<std::byte*>(values.data()) - heap_->base();
    auto* const seen = reinterpret_cast<float*>(as_seen.heap().data() + at);
    TeamRun& run = begin(kind, View(values), View(values), {.in = 0, .out = 0}, 0);
    seen[0] = 1;
    EXPECT_EQ(values[0], 1);
    seat().writes = 1;
    end(run);
    seen[0] = 2;
    EXPECT_EQ(values[0], 1) << static_cast<int>(kind);
  }
}

TEST_F(ShmWrites, SlotsOfAMemberThatHasGivenUpAreNotWrittenTo) {
  TeamRun& run = begin(7, 0);
  seat().key = key() | ShmBoard::kGivenUp;
  seat().given = 1;
  for (int i = 0; i < 3; ++i) team_.advance(run);
  EXPECT_THAT(std::span(laid_out(), kCount / 2), Each(7));
  EXPECT_EQ(run.peer, 1);
  end(run);
}

}  // namespace
}  // namespace motley::test
