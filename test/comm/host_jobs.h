// test/comm/host_jobs.h: jobs whose ranks are processes on hosts that network namespaces play.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "test/support/forked_ranks.h"
#include "test/support/net_hosts.h"
#include "test/support/temporary_folder.h"

namespace motley::test {

// How the ranks of a test are spread, and where they meet.
struct Job {
  explicit Job(const std::vector<int>& host_of_) : host_of(host_of_) {}
  int size() const { return static_cast<int>(host_of.size()); }
  Options options(int rank) const {
    Options options;
    options.rank = rank;
    options.size = size();
    options.controller = "file:" + (folder / "job");
    options.host = "host" + std::to_string(host_of[static_cast<std::size_t>(rank)]);
    options.join_timeout = seconds(20);
    return options;
  }

  std::vector<int> host_of;
  TemporaryFolder folder;
};

// Runs each rank as a process on its host.
class HostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = NetHosts::missing(); !why.empty()) GTEST_SKIP() << why;
  }

  using Body = std::function<bool(int rank, Store& store)>;
  static ForkedRanks start(const NetHosts& hosts, const Job& job, const Body& body) {
    return ForkedRanks(job.size(), [&](int rank, Store& store) {
      hosts.enter(job.host_of[static_cast<std::size_t>(rank)]);
      return body(rank, store);
    });
  }
  static void expect_success(ForkedRanks& ranks, const Job& job) {
    for (int rank = 0; rank < job.size(); ++rank) {
      EXPECT_TRUE(ranks.succeeded(rank)) << "rank " << rank;
    }
  }
};

inline bool sums_up(Communicator& comm) {
  for (const std::size_t n : {0, 1, 1000, 300'000}) {
    std::vector<int> data(n, comm.rank() + 1);
    comm.all_reduce(data, ReduceOp::kSum).wait();
    for (const int sum : data) {
      if (sum != comm.size() * (comm.size() + 1) / 2) return false;
    }
  }
  return true;
}

// The error of `body`; nothing was thrown, if empty.
inline std::string error_of(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    return error.code() == code ? error.what() : std::string("another code: ") + error.what();
  }
}

inline bool contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) != std::string::npos) continue;
    std::fprintf(stderr, "\"%s\" is not in \"%s\"\n", part.c_str(), text.c_str());
    return false;
  }
  return true;
}

}  // namespace motley::test
