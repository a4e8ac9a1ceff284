// Shows that files of a checkpoint that were cut, changed or never its own are found, named, and
// passed over where asked: every byte and every length of them.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/checkpoint.h"
#include "runtime/checkpoint/format.h"
#include "test/runtime/checkpoint_cases.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"
#include "test/support/simulated_disk.h"

namespace motley::runtime {
namespace {

using test::expect_error;
using test::SimulatedDisk;

// The checkpoints of steps 1 and 2, and one file of the newer replaced.
class Damage : public ::testing::Test {
 protected:
  Damage() {
    Training training;
    for (int step = 1; step <= 2; ++step) {
      training.step();
      save_alone(disk_, training, step);
    }
  }

  void replace(const std::string& name, ConstBytes content) {
    SimulatedDisk disk(disk_.content());
    disk.create("folder/" + name)->write(content);
    expect_damage(disk, name);
  }

  // Is found and named, changes nothing, and is passed over where asked.
  static void expect_damage(SimulatedDisk& disk, const std::string& name,
                            ErrorCode code = ErrorCode::kInvalid) {
    Training training;
    Checkpointer checkpoints("folder", {.files = &disk});
    expect_error(code, {"folder/" + name}, [&] { checkpoints.load(training.state); });
    EXPECT_EQ(training.bytes(), bytes_after(0));
    EXPECT_EQ(checkpoints.load(training.state, {.fall_back = true})->step, 1);
    EXPECT_EQ(training.bytes(), bytes_after(1));
  }

  const std::vector<std::string> names_ = {"00000002.index", "00000002.part-0-of-1"};
  SimulatedDisk disk_;
};

TEST_F(Damage, OfAnyByteIsFound) {
  for (const std::string& name : names_) {
    const std::vector<std::byte> whole = disk_.read("folder/" + name);
    for (std::size_t i = 0; i < whole.size() && !HasFailure(); ++i) {
      std::vector<std::byte> damaged = whole;
      damaged[i] ^= std::byte{static_cast<unsigned char>(1U << i % 8)};
      replace(name, damaged);
      EXPECT_FALSE(HasFailure()) << name << ", byte " << i;
    }
  }
}

TEST_F(Damage, ByACutAnywhereIsFound) {
  for (const std::string& name : names_) {
    const std::vector<std::byte> whole = disk_.read("folder/" + name);
    for (std::size_t length = 0; length < whole.size() && !HasFailure(); ++length) {
      replace(name, ConstBytes(whole).first(length));
      EXPECT_FALSE(HasFailure()) << name << ", " << length << " bytes";
    }
    std::vector<std::byte> longer = whole;
    longer.push_back(std::byte{10});
    replace(name, longer);
  }
}

TEST_F(Damage, ByFilesOfOthersIsFound) {
  const std::string text =
      "PK\x03\x04 a file of another program, and a long one at that: " + std::string(2000, 'x');
  for (const std::string& name : names_) {
    replace(name, std::as_bytes(std::span(text)));
    replace(name, disk_.read("folder/00000001" + name.substr(8)));
    SimulatedDisk gone(disk_.content());
    if (name != names_[0]) {
      gone.remove("folder/" + name);
      expect_damage(gone, name, ErrorCode::kIo);
    }
  }
  std::string later = to_text(Index{.number = 2, .parts = {{}}});
  later.replace(later.find(" 1\n"), 2, " 2");
  replace(names_[0], std::as_bytes(std::span(later)));
}

// What has the right checksum, but was not written by this program.
TEST_F(Damage, ByIndexesThatLieIsFound) {
  const auto content = disk_.read("folder/" + names_[0]);
  const Index whole = parse_index("path", content);
  const std::vector<std::function<void(Index&)>> lies = {
      [](Index& index) { index.number = 1; }, [](Index& index) { index.parts.clear(); },
      [](Index& index) { index.parts.push_back(index.parts[0]); },
      [](Index& index) { index.parts[0].bytes += 1; },
      [](Index& index) { index.parts[0].crc32 ^= 1; }};
  for (const auto& lie : lies) {
    Index index = whole;
    lie(index);
    const std::string text = to_text(index);
    SimulatedDisk disk(disk_.content());
    disk.create("folder/" + names_[0])->write(std::as_bytes(std::span(text)));
    Training training;
    Checkpointer checkpoints("folder", {.files = &disk});
    EXPECT_EQ(checkpoints.load(training.state, {.fall_back = true})->step, 1);
  }
}

TEST_F(Damage, OfAllCheckpointsNamesTheNewest) {
  for (const char* name : {"folder/00000001.index", "folder/00000002.index"}) disk_.create(name);
  Training training;
  Checkpointer checkpoints("folder", {.files = &disk_});
  expect_error(ErrorCode::kInvalid, {"folder/00000002.index"},
               [&] { checkpoints.load(training.state, {.fall_back = true}); });
}

TEST_F(Damage, OfOneWorkersViewIsAnErrorOnAll) {
  SimulatedDisk damaged(disk_.content());
  damaged.create("folder/" + names_[1]);
  test::run_ranks(2, [&](Communicator& comm) {
    Training training(comm.rank());
    Checkpointer checkpoints("folder", comm, {.files = comm.rank() == 1 ? &damaged : &disk_});
    expect_error(ErrorCode::kInvalid, {names_[1], "0 bytes"},
                 [&] { checkpoints.load(training.state); });
    EXPECT_EQ(checkpoints.load(training.state, {.fall_back = true})->step, 1);
  });
}

}  // namespace
}  // namespace motley::runtime
