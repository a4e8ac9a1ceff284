// test/support/simulated_disk.h: a file system in memory that fails or loses power at a chosen
// call, and forgets what nobody made it keep.
//
//   SimulatedDisk disk;
//   disk.fail_at(7, SimulatedDisk::Fault::kPowerCut);
//   write_something(disk);                        // the 7th call that changes files throws, and
//   all
//                                                 // after it
//   SimulatedDisk after(disk.after(SimulatedDisk::Loss::kSome, random));
//   read_something(after);
//
// File::write() may be cut anywhere. Of a file what was written after its last sync() may be lost
// from any byte on, or be zeros there; of a folder each name made, changed or removed since its
// last sync_folder() may be as before, whatever became of the others.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/file_system.h"

namespace motley::test {

class SimulatedDisk final : public runtime::FileSystem {
 public:
  enum class Fault : std::uint8_t {
    kError,     // the call fails, once, perhaps half done; the disk goes on
    kPowerCut,  // that call and all that follow fail
  };
  enum class Loss : std::uint8_t {
    kNothing,  // the program was killed, the machine goes on
    kAll,      // that was not synced
    kSome,     // of it, by chance
  };
  struct Content {
    struct Node {
      std::vector<std::byte> bytes;
      std::size_t synced = 0;
    };
    struct Change {
      std::string path;
      int node;  // -1: removed
    };
    std::vector<Node> nodes;
    std::map<std::string, int> names;    // as programs see them
    std::map<std::string, int> durable;  // as of the last sync_folder()
    std::vector<Change> changes;         // since then
  };

  SimulatedDisk() = default;
  explicit SimulatedDisk(Content content) : content_(std::move(content)) {}

  // The `call`-th from now on, from 1, of those that change files; 0: none.
  void fail_at(int call, Fault fault, std::uint64_t seed = 0);
  int calls() const;  // since fail_at(), or since the beginning
  Content content() const;
  // What a machine finds that starts again.
  Content after(Loss loss, std::mt19937_64& random) const;

  std::unique_ptr<runtime::FileLock> lock(const std::string& path) override;
  std::unique_ptr<runtime::File> create(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void make_folder(const std::string& path) override;
  void sync_folder(const std::string& path) override;
  std::vector<std::string> list(const std::string& folder) const override;
  std::vector<std::byte> read(const std::string& path) const override;

 private:
  class Handle;
  class Lock;

  // Counts a call; throws if it is to fail. With the lock held.
  void count(const std::string& what);
  int node_of(const std::string& path) const;
  void set(const std::string& path, int node);

  mutable std::mutex mutex_;
  Content content_;
  std::set<std::string> locked_;
  int calls_ = 0;
  int fail_at_ = 0;
  Fault fault_ = Fault::kError;
  std::mt19937_64 random_;
};

}  // namespace motley::test
