// What a peer shows in shared memory, whatever that is: no call touches anything outside of its
// buffers and the peer's memory, and each comes to an end when it is given up.
//
// An input is whether ranks spin, and so also show and take short calls before noting them, a call
// and a list of writes to the peer's board and heap, with looks in between. The keys are right, so
// that the call finds what was written.
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/error.h"
#include "comm/transport/shm_team.h"
#include "test/support/fuzz.h"
#include "test/support/hasty_clock.h"

namespace motley::test {
namespace {

constexpr std::size_t kHeap = 4 << 20;
constexpr std::size_t kGuard = 1 << 20;

// The rest of an input, bytes of which are taken as numbers.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  void take(void* to, std::size_t bytes) {
    const std::size_t n = std::min(bytes, left_);
    if (n != 0) std::memcpy(to, data_, n);
    data_ += n;
    left_ -= n;
  }
  template <class T>
  T number() {
    T value{};
    take(&value, sizeof(value));
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

class World {
 public:
  explicit World(bool spins)
      : plan_{.rank = 1, .size = 2, .payload_bytes = 64}, peer_(ShmSegment::create(plan_, kHeap)) {
    ShmSegment mine = ShmSegment::create({.rank = 0, .size = 2, .payload_bytes = 64}, kHeap);
    heap_ = std::make_shared<ShmHeap>(std::move(mine));
    theirs_ = std::make_unique<ShmSegment>(ShmSegment::open(peer_.address(), plan_));
    // Whoever reads on beyond the peer's memory shall be found out.
    std::byte* const end = theirs_->heap().data() + kHeap;
    guard_ = mmap(end, kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    team_ = std::make_unique<ShmTeam>(
        0, heap_, std::vector<const ShmSegment*>{nullptr, theirs_.get()},
        ShmTeam::Abilities{.spins = spins, .reads_private = true}, clock_);
  }

  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    if (guard_ != MAP_FAILED) munmap(guard_, kGuard);
  }

  void run(Input& input);

 private:
  TeamCall call_of(Input& input);
  void write(Input& input, const TeamCall& call);

  ShmSegment::Plan plan_;
  ShmSegment peer_;  // as its owner maps it
  std::shared_ptr<ShmHeap> heap_;
  std::unique_ptr<ShmSegment> theirs_;
  void* guard_ = nullptr;
  HastyClock clock_;
  std::unique_ptr<ShmTeam> team_;
  Group group_{{0, 1}, {.id = 9}};
  std::vector<std::byte> in_, out_;
  std::vector<std::size_t> in_counts_, out_counts_;
};

// Of buffers that end where memory does that may be touched.
TeamCall World::call_of(Input& input) {
  const auto kind = static_cast<CallKind>(input.number<std::uint8_t>() % kCallKinds);
  const auto log = input.number<std::uint8_t>() % 20;
  const std::size_t n = ((std::size_t{1} << log) + input.number<std::uint8_t>()) / 2 * 2;
  const bool halves_in = kind == CallKind::kAllGather || kind == CallKind::kGather;
  const bool halves_out = kind == CallKind::kReduceScatter || kind == CallKind::kScatter;
  in_counts_ = out_counts_ = {n / 4, n - n / 4};
  in_.assign(halves_in ? n / 2 : n, std::byte{1});
  out_.assign(halves_out ? n / 2 : n, std::byte{2});
  if (kind == CallKind::kAllGatherV) in_.resize(out_counts_[0]);
  return {.id = {group_.tag(), group_.next_call()},
          .fingerprint = {.count = varies(kind) || kind == CallKind::kBarrier ? 0 : n,
                          .kind = kind,
                          .dtype = DType::kInt8,
                          .root = input.number<std::uint8_t>() % 2u},
          .group = &group_,
          .in = ConstView(in_.data(), in_.size(), DType::kInt8),
          .out = View(out_.data(), out_.size(), DType::kInt8),
          .in_counts = in_counts_,
          .out_counts = out_counts_};
}

void World::write(Input& input, const TeamCall& call) {
  const std::uint64_t group = hash(call.id.group);
  ShmSeat& seat = peer_.board().seats[seat_hint(group, call.id.number)];
  switch (input.number<std::uint8_t>() % 8) {
    case 0:
      input.take(seat.line, sizeof(seat.line));
      seat.ticket = input.number<std::uint32_t>();
      seat.key = key_of(group, call.id.number, call.fingerprint);
      break;
    case 1:
      seat.key = seat.key ^ input.number<std::uint8_t>();
      break;
    case 2:
      input.take(&seat.id, sizeof(seat.id));
      break;
    case 3:
      seat.fingerprint.count = input.number<std::uint64_t>();
      break;
    case 4:
      seat.given = input.number<std::uint32_t>();
      seat.taken = input.number<std::uint32_t>();
      seat.writes = input.number<std::uint32_t>();
      break;
    case 5:
      seat.slots = input.number<std::uint64_t>();
      break;
    case 6:
      input.take(peer_.heap().data() + input.number<std::uint16_t>(), 64);
      break;
    default:
      peer_.board().strays = input.number<std::uint8_t>();
  }
}

void World::run(Input& input) {
  const TeamCall call = call_of(input);
  if (call.fingerprint.kind == CallKind::kSendRecv) return;
  write(input, call);
  TeamRun* run = nullptr;
  try {
    run = &team_->begin(call);
    for (int looks = 0; looks < 64 && run->state == TeamRun::State::kRuns; ++looks) {
      if (input.empty() && !team_->advance(*run)) break;
      if (!input.empty()) write(input, call);
      team_->advance(*run);
    }
    require(run->state != TeamRun::State::kMismatch || run->peer == 1);
  } catch (const Error& error) {
    require(error.ranks() == std::vector<int>{1});
  }
  if (run != nullptr) team_->end(*run, nullptr);
}

}  // namespace
}  // namespace motley::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  motley::test::Input input(data, size);
  motley::test::World world(input.number<std::uint8_t>() % 2 != 0);
  world.run(input);
  return 0;
}
