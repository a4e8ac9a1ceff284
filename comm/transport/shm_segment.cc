#include "comm/transport/shm_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "comm/transport/seal.h"

namespace motley {
namespace {

constexpr std::uint64_t kMagic = 0x326d68736c746f6d;  // "motlshm2"

constexpr std::size_t kHeapAlignment = 2 << 20;  // of a huge page

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

// The kernel that runs us, and the name space in which our process ids mean something.
std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string pid_namespace() {
  std::array<char, 64> link{};
  const ssize_t length = readlink("/proc/self/ns/pid", link.data(), link.size());
  return length > 0 ? std::string(link.data(), static_cast<std::size_t>(length)) : "unknown";
}

std::string host_name() {
  std::array<char, 256> text{};
  return gethostname(text.data(), text.size() - 1) == 0 ? text.data() : "unknown";
}

// What an address says, as words separated by blanks.
struct Address {
  std::string host, boot, pid_space;
  int pid = 0;
  int descriptor = -1;
  std::uint64_t nonce = 0;
  int size = 0;
  std::size_t payload_bytes = 0;
  std::size_t heap_bytes = 0;

  std::string to_text() const {
    return fmt::format("{} {} {} {} {} {} {} {} {}", host, boot, pid_space, pid, descriptor, nonce,
                       size, payload_bytes, heap_bytes);
  }
  static bool parse(const std::string& text, Address& a) {
    std::istringstream in(text);
    in >> a.host >> a.boot >> a.pid_space >> a.pid >> a.descriptor >> a.nonce >> a.size >>
        a.payload_bytes >> a.heap_bytes;
    return !in.fail();
  }
};

[[noreturn]] void throw_unreachable(int rank, const std::string& why, const std::string& advice) {
  throw Error(
      ErrorCode::kUnavailable,
      fmt::format("shm: the memory of rank {} cannot be reached: {}. {}", rank, why, advice),
      {rank});
}

// Throws unless processes can share memory and agree on what it holds.
void check_reachable(const Address& peer, const ShmSegment::Plan& plan) {
  const int rank = plan.rank;
  if (peer.boot != boot_id()) {
    throw_unreachable(rank, fmt::format("it runs on {} and we on {}", peer.host, host_name()),
                      "Use transport \"ucx\" between hosts.");
  }
  if (peer.pid_space != pid_namespace()) {
    throw_unreachable(rank,
                      fmt::format("it is in {} and we in {}", peer.pid_space, pid_namespace()),
                      "Let the containers share a pid namespace, or use transport \"ucx\".");
  }
  if (peer.payload_bytes != plan.payload_bytes || peer.size != plan.size) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("shm: rank {} is one of {} ranks with messages of {} bytes, we are one "
                            "of {} with {}. All ranks must have the same size and segment_bytes.",
                            rank, peer.size, peer.payload_bytes, plan.size, plan.payload_bytes),
                {rank});
  }
}

}  // namespace

std::size_t ShmSegment::Sizes::board() const noexcept {
  return round_up(4 * kCacheLine + static_cast<std::size_t>(ranks) * ShmRing::bytes(payload_bytes),
                  alignof(ShmBoard));
}

std::size_t ShmSegment::Sizes::heap() const noexcept {
  return round_up(board() + sizeof(ShmBoard), kHeapAlignment);
}

ShmSegment::ShmSegment(int descriptor, const Sizes& sizes)
    : sizes_(sizes), descriptor_(descriptor) {
  const std::size_t bytes = sizes.all();
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    const int error = std::exchange(errno, 0);
    close(descriptor);
    errno = error;
    throw_errno(fmt::format("map {} bytes of shared memory", bytes));
  }
  head_ = static_cast<Head*>(memory);
  madvise(memory, bytes, MADV_HUGEPAGE);  // fewer faults where the host allows it; else no matter
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : head_(std::exchange(other.head_, nullptr)),
      sizes_(other.sizes_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      owner_(other.owner_),
      address_(std::move(other.address_)) {}

ShmSegment::~ShmSegment() {
  close_descriptor();
  if (head_ != nullptr) munmap(head_, sizes_.all());
}

void ShmSegment::close_descriptor() noexcept {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

ShmSegment ShmSegment::create(const Plan& plan, std::size_t heap_bytes) {
  static_assert(sizeof(Head) <= 4 * kCacheLine);
  const Sizes sizes{plan.size, plan.payload_bytes, heap_bytes};
  const std::size_t bytes = sizes.all();
  const int descriptor = memfd_create("motley-inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) throw_errno("create shared memory");
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    close(descriptor);
    errno = error;
    throw_errno(fmt::format("size shared memory to {} bytes", bytes));
  }
  fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);  // so that no access can fault
  ShmSegment segment(descriptor, sizes);
  std::uint64_t nonce = 0;
  if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce)) throw_errno("draw a random number");
  segment.head_->nonce = nonce;
  segment.head_->nonce_address = reinterpret_cast<std::uintptr_t>(&segment.head_->nonce);
  segment.head_->seal = segment.seal_of(plan.rank, plan.token);
  segment.head_->rank = static_cast<std::uint32_t>(plan.rank);
  segment.head_->magic = kMagic;
  segment.owner_ = getpid();
  segment.address_ = Address{.host = host_name(),
                             .boot = boot_id(),
                             .pid_space = pid_namespace(),
                             .pid = getpid(),
                             .descriptor = descriptor,
                             .nonce = nonce,
                             .size = plan.size,
                             .payload_bytes = plan.payload_bytes,
                             .heap_bytes = heap_bytes}
                         .to_text();
  return segment;
}

ShmSegment ShmSegment::open(const std::string& address, const Plan& plan) {
  const int rank = plan.rank;
  Address peer;
  if (!Address::parse(address, peer)) {
    throw_unreachable(rank, fmt::format("\"{}\" is no address", address),
                      "All ranks must run the same version of Motley.");
  }
  check_reachable(peer, plan);
  const std::string path = fmt::format("/proc/{}/fd/{}", peer.pid, peer.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    throw_unreachable(
        rank, fmt::format("open {}: {} ({})", path, std::generic_category().message(errno), errno),
        "Check that it still runs and belongs to the same user.");
  }
  const Sizes sizes{plan.size, plan.payload_bytes, peer.heap_bytes};
  const off_t bytes = lseek(descriptor, 0, SEEK_END);
  if (bytes != static_cast<off_t>(sizes.all()) ||
      static_cast<std::size_t>(bytes) < peer.heap_bytes) {
    close(descriptor);
    throw_unreachable(rank, path + " is another file", "Check that it still runs.");
  }
  ShmSegment segment(descriptor, sizes);
  segment.close_descriptor();
  segment.owner_ = peer.pid;
  const Head& head = *segment.head_;
  if (head.magic != kMagic || head.rank != static_cast<std::uint32_t>(rank) ||
      head.nonce != peer.nonce) {
    throw_unreachable(rank, path + " is another file", "Check that it still runs.");
  }
  if (!same_seal(head.seal, segment.seal_of(rank, plan.token))) {
    throw_unreachable(rank, path + " belongs to another job, whose token differs",
                      "Give all ranks of a job the same token.");
  }
  return segment;
}

std::uint64_t ShmSegment::seal_of(int rank, std::string_view token) const noexcept {
  return Sealer(token).seal(head_->nonce, rank);
}

ShmRing ShmSegment::ring_from(int rank) const noexcept {
  std::byte* const rings = reinterpret_cast<std::byte*>(head_) + 4 * kCacheLine;
  return {rings + static_cast<std::size_t>(rank) * ShmRing::bytes(sizes_.payload_bytes),
          sizes_.payload_bytes};
}

ShmBoard& ShmSegment::board() const noexcept {
  return *reinterpret_cast<ShmBoard*>(reinterpret_cast<std::byte*>(head_) + sizes_.board());
}

Bytes ShmSegment::heap() const noexcept {
  return {reinterpret_cast<std::byte*>(head_) + sizes_.heap(), sizes_.heap_bytes};
}

}  // namespace motley
