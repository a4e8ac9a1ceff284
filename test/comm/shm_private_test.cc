// Buffers that ranks read straight from each other's processes: what comes is right or the call
// fails, whether the kernel forbids it, the owner gives up in the middle, or dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <latch>
#include <numeric>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/transport/factory.h"
#include "comm/transport/shm_peer_memory.h"
#include "comm/transport/slot_stores.h"
#include "test/support/forked_ranks.h"
#include "test/support/joined.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::ForkedRanks;
using test::run_ranks_on;

// Floats: read directly in the first calls.
constexpr std::size_t kBlock = 256 << 10;

std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

TEST(ShmPeerMemory, ReadsWhatIsThereAndSaysWhatIsNot) {
  const std::uint64_t word = 0x1234567890abcdef, other = 1;
  std::vector<std::byte> from(100'000), to(100'000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i % 251);
  const ShmPeerMemory own(getpid(), address_of(&word), word);
  EXPECT_TRUE(own.can_be_read());
  EXPECT_EQ(own.read(to.data(), address_of(from.data()), to.size()), 0);
  EXPECT_EQ(to, from);
  EXPECT_EQ(own.read(to.data(), 0, 8), EFAULT);
  EXPECT_EQ(ShmPeerMemory(getpid(), address_of(&other), word).read(to.data(), 0, 0), ESRCH)
      << "another process than we knew";
  EXPECT_EQ(ShmPeerMemory(getpid(), 0, word).read(to.data(), 0, 0), EFAULT);
  EXPECT_FALSE(ShmPeerMemory().can_be_read());
}

class StoppedClock final : public Clock {
 public:
  TimePoint now() const override { return time; }
  void sleep_until(TimePoint) override {}
  TimePoint time{seconds(100)};
};

// What stores through the caches take, as cores are near to each other or far apart.
constexpr std::size_t kStore = 64 << 10;
constexpr Duration kNear = std::chrono::microseconds(7);
constexpr Duration kFar = std::chrono::microseconds(28);

TEST(SlotStores, GoAroundTheCachesWhereOtherCoresAreFar) {
  StoppedClock clock;
  SlotStores stores(clock);
  EXPECT_FALSE(stores.go_around());
  for (int i = 0; i < 100; ++i) {  // one in three is held up, by whatever it may be
    stores.timed(kStore, i % 3 == 0 ? kFar : kNear, clock.now());
    ASSERT_FALSE(stores.go_around()) << i;
  }
  stores.timed(kStore, kNear, clock.now());
  for (int i = 1; i < SlotStores::kSlowInTurn; ++i) {
    stores.timed(kStore, kFar, clock.now());
    ASSERT_FALSE(stores.go_around()) << i;
  }
  stores.timed(kStore, kFar, clock.now());
  EXPECT_TRUE(stores.go_around());
  stores.timed(kStore, kNear, clock.now());
  EXPECT_FALSE(stores.go_around()) << "they came together again";
}

// A clock that stands still while a store is made says that it took no time.
TEST(SlotStores, LookNowAndThenWhetherCoresAreStillFar) {
  StoppedClock clock;
  SlotStores stores(clock);
  std::vector<std::byte> from(kStore), to(kStore);
  std::iota(reinterpret_cast<unsigned char*>(from.data()),
            reinterpret_cast<unsigned char*>(from.data()) + kStore, 0);
  for (int i = 0; i < SlotStores::kSlowInTurn; ++i) stores.timed(kStore, kFar, clock.now());
  for (Duration pause = SlotStores::kFirstTry; pause < SlotStores::kRarestTry; pause *= 2) {
    clock.time += pause - std::chrono::nanoseconds(1);
    stores.copy(to.data(), from.data(), kStore);
    ASSERT_TRUE(stores.go_around()) << "too early";
    clock.time += std::chrono::nanoseconds(1);
    stores.timed(kStore, kFar, clock.now());
    ASSERT_TRUE(stores.go_around());
  }
  clock.time += SlotStores::kRarestTry - std::chrono::nanoseconds(1);
  stores.copy(to.data() + 1, from.data(), kStore - 1);
  EXPECT_TRUE(stores.go_around());
  clock.time += std::chrono::nanoseconds(1);
  stores.copy(to.data(), from.data(), SlotStores::kLeastTimed - 1);
  EXPECT_TRUE(stores.go_around()) << "too short to tell";
  stores.copy(to.data(), from.data(), kStore);
  EXPECT_FALSE(stores.go_around());
  stores.finish();
  EXPECT_EQ(to, from);
}

// The second half of what is to be read does not exist.
TEST(ShmPeerMemory, IsNotContentWithAPart) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const two =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(two, MAP_FAILED);
  ASSERT_EQ(munmap(static_cast<std::byte*>(two) + page, page), 0);
  const std::uint64_t word = 77;
  std::vector<std::byte> to(2 * page);
  const ShmPeerMemory own(getpid(), address_of(&word), word);
  EXPECT_EQ(own.read(to.data(), address_of(two), page), 0);
  EXPECT_EQ(own.read(to.data(), address_of(two), 2 * page), EFAULT);
  munmap(two, page);
}

// The kernel's own page of clock data can be read here, but not by those who ask the kernel.
TEST(ShmPeerMemory, KnowsMemoryThatMayNotBeReadSo) {
  std::ifstream maps("/proc/self/maps");
  std::uint64_t page = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with("[vvar]")) page = std::stoull(line, nullptr, 16);
  }
  if (page == 0) GTEST_SKIP() << "this kernel shows no page of its own";
  const std::uint64_t word = 77;
  const ShmPeerMemory own(getpid(), address_of(&word), word);
  EXPECT_FALSE(own.can_be_read(page, 4096));
  EXPECT_TRUE(own.can_be_read(address_of(&word), sizeof(word)));
}

// All moves of private blocks; false if any result is wrong.
bool moves_everything(Communicator& comm) {
  const auto size = static_cast<std::size_t>(comm.size());
  const auto me = static_cast<std::size_t>(comm.rank());
  bool right = true;
  std::vector<float> in(size * kBlock), out(size * kBlock), block(kBlock);
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] =
        static_cast<float>(me * size + i / kBlock) + static_cast<float>(i % kBlock % 1000) / 1024;
  const auto expect = [&](std::span<const float> got, std::size_t from, std::size_t to) {
    for (std::size_t i = 0; i < got.size(); ++i)
      right &= got[i] ==
               static_cast<float>(from * size + to) + static_cast<float>(i % kBlock % 1000) / 1024;
  };
  const auto each = [&](auto&& to) {
    for (std::size_t r = 0; r < size; ++r)
      expect(std::span(out).subspan(r * kBlock, kBlock), r, to(r));
  };
  comm.all_to_all(in, out).wait();
  each([&](std::size_t) { return me; });
  const std::vector<std::size_t> counts(size, kBlock);
  std::fill(out.begin(), out.end(), -1.f);
  comm.all_to_all_v({in, counts}, {out, counts}).wait();
  each([&](std::size_t) { return me; });
  const auto own = std::span<const float>(in).subspan(me * kBlock, kBlock);
  comm.all_gather(own, out).wait();
  each([](std::size_t r) { return r; });
  std::fill(out.begin(), out.end(), -1.f);
  comm.gather(own, out, 0).wait();
  if (me == 0) each([](std::size_t r) { return r; });
  comm.scatter(in, block, 0).wait();
  expect(block, 0, me);
  if (me == 0) block.assign(own.begin(), own.end());
  comm.broadcast(block, 0).wait();
  expect(block, 0, 0);
  return right;
}

Communicator join(int rank, int size, Store& store, const Options& options) {
  return test::joined(make_shm_transport, rank, size, store, options);
}

// From now on process_vm_readv fails with EPERM in this process. False if filters are not allowed.
bool forbid_reading() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = 4, .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Whether `body` writes nothing to the standard error stream.
bool is_silent(const std::function<bool()>& body) {
  const int file = memfd_create("stderr", 0);
  const int kept = dup(STDERR_FILENO);
  dup2(file, STDERR_FILENO);
  const bool right = body();
  std::fflush(stderr);
  const bool silent = lseek(file, 0, SEEK_END) == 0;
  dup2(kept, STDERR_FILENO);
  close(file);
  close(kept);
  return right && silent;
}

// Scenario 21: denied to everybody, to one rank alone, or to nobody.
TEST(ShmPrivate, Scenario21WhereReadingIsDeniedSlotsAreUsedAndNothingIsSaid) {
  for (const int denied : {0, 1, 3}) {
    ForkedRanks ranks(3, [denied](int rank, Store& store) {
      if (rank < denied && !forbid_reading()) return false;
      return is_silent([&] {
        const Options options;
        Communicator comm = join(rank, 3, store, options);
        const bool right = moves_everything(comm);
        comm.barrier().wait();
        return right;
      });
    });
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(ranks.succeeded(rank)) << "rank " << rank << ", denied to " << denied;
  }
}

template <class Body>
void expect_error(ErrorCode code, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
  }
}

// Rank 0 is found by rank 1, gives the call up and frees its buffer; then rank 2 comes, and rank 1
// would read.
TEST(ShmPrivate, ABufferGivenUpIsReadByNobodyWhoCompletes) {
  std::latch shown(1), found(1), freed(1);
  run_ranks_on("shm", 3, [&](Communicator& comm) {
    const Group group({0, 1, 2}, {.id = 3});
    const std::size_t bytes = 3 * kBlock * sizeof(float);
    std::vector<float> out(3 * kBlock);
    const auto call = [&](ConstView in) {
      return comm.all_to_all(in, out, {.group = &group, .timeout = seconds(0.1)});
    };
    if (comm.rank() == 0) {
      void* const memory =
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(memory, MAP_FAILED);
      Request request = call(View(std::span(static_cast<float*>(memory), 3 * kBlock)));
      shown.count_down();
      found.wait();
      request.cancel();
      munmap(memory, bytes);
      freed.count_down();
      return;
    }
    const std::vector<float> in(3 * kBlock);
    if (comm.rank() == 1) {
      shown.wait();
      Request request = call(in);
      EXPECT_FALSE(request.test());
      found.count_down();
      freed.wait();
      expect_error(ErrorCode::kTimeout, [&] { request.wait(); });
    } else {
      freed.wait();
      expect_error(ErrorCode::kTimeout, [&] { call(in).wait(); });
    }
  });
}

// Some of what rank 0 gives is not there, though it has not given up.
TEST(ShmPrivate, ABufferThatIsNotThereIsAnErrorOfThoseWhoReadIt) {
  run_ranks_on("shm", 2, [](Communicator& comm) {
    const std::vector<std::size_t> gives = {0, comm.rank() == 0 ? kBlock : 0};
    const std::vector<std::size_t> gets = {comm.rank() == 1 ? kBlock : 0, 0};
    const std::size_t bytes = kBlock * sizeof(float);
    std::vector<float> out(gets[0]);
    void* const nothing =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(nothing, MAP_FAILED);
    ASSERT_EQ(mprotect(static_cast<std::byte*>(nothing) + bytes / 2, bytes / 4, PROT_NONE), 0);
    const std::span<const float> in(static_cast<const float*>(nothing), gives[1]);
    comm.barrier().wait();  // so that rank 1 comes before rank 0 has waited in vain
    const CallOptions options{.timeout = seconds(comm.rank() == 1 ? 20 : 3)};
    expect_error(comm.rank() == 1 ? ErrorCode::kIo : ErrorCode::kTimeout, [&] {
      comm.all_to_all_v({in, gives}, {out, gets}, options).wait();
    });
    munmap(nothing, bytes);
  });
}

}  // namespace
}  // namespace motley
