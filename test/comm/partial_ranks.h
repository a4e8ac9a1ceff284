// Ranks as threads, over mailboxes where nothing else is said, with a controller between them: what
// the tests of partial-reduce share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/control/local_control.h"
#include "comm/error.h"
#include "comm/transport/inproc.h"
#include "comm/version.h"
#include "test/support/transports.h"

namespace motley::test {

inline bool ucx_is_missing() {
  return version_text().find("UCX not in this build") != std::string::npos;
}

using Body = std::function<void(Communicator&)>;
using Connect = std::function<std::unique_ptr<ControlClient>(int rank)>;

// `transport` as in rank_runner.h.
inline void run_threads(int size, const Connect& connect, const Body& body, Duration timeout,
                        const std::string& transport = "inproc") {
  InprocNetwork network(size);
  Options options;
  options.size = size;
  options.timeout = timeout;
  if (transport == "ucx_staged") options.ucx_device = "staged";
  std::vector<std::unique_ptr<Transport>> transports;
  if (transport != "inproc")
    transports = make_transports(transport == "shm" ? "shm" : "ucx", size, options);
  std::vector<Communicator> seats;
  for (int rank = 0; rank < size; ++rank) {
    options.rank = rank;
    std::unique_ptr<Transport> own = transports.empty()
                                         ? network.transport(rank)
                                         : std::move(transports[static_cast<std::size_t>(rank)]);
    seats.emplace_back(std::move(own), connect(rank), Clock::real(), options);
  }
  std::vector<std::thread> threads;
  for (Communicator& seat : seats) {
    threads.emplace_back([&] {
      try {
        body(seat);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << seat.rank() << " threw: " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The body also gets the controller, to declare ranks dead.
inline void run(int size, const std::function<void(Communicator&, LocalControl&)>& body,
                Duration timeout = seconds(20), const std::string& transport = "inproc") {
  LocalControl control(size);
  run_threads(
      size, [&](int rank) { return control.connect(rank); },
      [&](Communicator& comm) { body(comm, control); }, timeout, transport);
}

template <class Call>
void expect_error(ErrorCode code, const std::string& fact, Call call) {
  try {
    call();
    ADD_FAILURE() << "no error, but " << name(code) << " was due";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(fact));
  }
}

// What a rank says that is ready for a group of `group_size`.
inline ReadyNote note_of(int group_size) { return {.grouping = {.group_size = group_size}}; }

// What one rank saw of one call.
struct Record {
  std::vector<int> group;
  std::vector<double> before;
  std::vector<double> after;
  std::vector<double> weights;  // of the group
};

}  // namespace motley::test
