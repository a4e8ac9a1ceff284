// Shows that a peer may die at the one moment that UCX 1.13 does not bear by itself: after the
// kernel has made the connection to it, before the first word has left.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <utility>

#include "comm/transport/ucx_transport.h"
#include "test/support/forked_ranks.h"
#include "test/support/transports.h"

namespace {
std::function<void(int descriptor)> after_connect;  // once, of a stream to a host
}  // namespace

// Stands before the C library's, for UCX as well.
extern "C" int connect(int descriptor, const sockaddr* address, socklen_t size) {
  static const auto real = reinterpret_cast<decltype(&connect)>(dlsym(RTLD_NEXT, "connect"));
  const int result = real(descriptor, address, size);
  const int error = errno;
  int type = 0;
  socklen_t type_size = sizeof(type);
  getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &type_size);
  const bool to_host = address->sa_family == AF_INET || address->sa_family == AF_INET6;
  if (to_host && type == SOCK_STREAM && after_connect) {
    std::exchange(after_connect, nullptr)(descriptor);
  }
  errno = error;
  return result;
}

namespace motley::test {
namespace {

// Keeps its owner, who has told where it is, from all that comes after.
class EndlessStore final : public Store {
 public:
  explicit EndlessStore(Store& store) : store_(store) {}
  void set(std::string_view key, std::string_view value) override { store_.set(key, value); }
  std::string get(std::string_view, TimePoint) override {
    while (true) pause();
  }
  std::int64_t add(std::string_view key, std::int64_t amount) override {
    return store_.add(key, amount);
  }

 private:
  Store& store_;
};

std::unique_ptr<Transport> join(int rank, Store& store, Duration time) {
  return make_ucx_transport({.rank = rank,
                             .size = 2,
                             .store = store,
                             .name = "test",
                             .clock = Clock::real(),
                             .options = {},
                             .deadline = Clock::real().now() + time});
}

bool comes(int descriptor, short events) {
  pollfd look{.fd = descriptor, .events = events, .revents = 0};
  const int milliseconds = static_cast<int>(kPatience / std::chrono::milliseconds(1));
  return poll(&look, 1, milliseconds) == 1;
}

// What rank 0 does; false unless it learns of rank 1's death, which comes right after connect().
// Rank 1 is stopped before, so that it does not take the connection, which the kernel then resets.
bool lose_rank_1(Store& store) {
  const pid_t other = std::stoi(store.get("pid", Clock::real().now() + kPatience));
  store.get("test/ucx/address/1", Clock::real().now() + kPatience);
  ::kill(other, SIGSTOP);
  bool died = false;
  after_connect = [&](int descriptor) {
    const bool connected = comes(descriptor, POLLOUT);
    ::kill(other, SIGKILL);
    died = connected && comes(descriptor, POLLRDHUP);
  };
  try {
    join(0, store, seconds(2));
    return false;
  } catch (const Error& error) {
    const bool known = error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kTimeout;
    return died && known && error.ranks() == std::vector<int>{1};
  }
}

TEST(UcxRefused, APeerThatDiesBeforeTheFirstWordIsLost) {
  ForkedRanks ranks(2, [](int rank, Store& store) {
    if (rank == 0) return lose_rank_1(store);
    store.set("pid", std::to_string(getpid()));
    EndlessStore endless(store);
    join(1, endless, kPatience);
    return false;
  });
  EXPECT_TRUE(ranks.succeeded(0));
}

}  // namespace
}  // namespace motley::test
