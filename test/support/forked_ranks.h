// test/support/forked_ranks.h: ranks as processes, for tests of what only processes can do: die.
//
//   ForkedRanks ranks(2, [](int rank, Store& store) { …; return ok; });
//   ranks.kill(1);
//   EXPECT_TRUE(ranks.succeeded(0));
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/store.h"
#include "test/support/temporary_folder.h"

namespace motley::test {

// Values are files of one folder, so that any process may set and get them.
class FolderStore final : public Store {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}
  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, TimePoint deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount) override;

 private:
  std::string path(std::string_view key) const;
  std::string folder_;
};

class ForkedRanks {
 public:
  using Body = std::function<bool(int rank, Store& store)>;
  // Forks; an exception in a body is printed and counts as false. To be made while this process has
  // one thread.
  ForkedRanks(int size, const Body& body);
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;
  ~ForkedRanks();  // kills who still runs and removes the folder

  Store& store() noexcept { return store_; }
  void kill(int rank);  // SIGKILL, and waits for its end
  // Waits, at most 60 s, for the rank's end. True if its body returned true.
  bool succeeded(int rank);
  // The same for what may take longer: waits until the rank ends.
  bool ended_well(int rank);

 private:
  TemporaryFolder folder_;
  FolderStore store_;
  std::vector<pid_t> pids_;  // 0: ended
};

}  // namespace motley::test
