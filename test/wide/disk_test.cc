// Shows that training from disk learns the same features as in memory, as well, whatever the parts;
// that it leaves nothing behind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "comm/error.h"
#include "test/wide/skewed_rows.h"
#include "wide/disk_run.h"
#include "wide/file/memory_limit.h"

namespace motley::wide {
namespace {

class Disk : public testing::TestWithParam<ModelKind> {
 protected:
  Disk() { std::filesystem::create_directories(folder_); }
  ~Disk() override { std::filesystem::remove_all(folder_); }

  // As libffm text.
  std::string written(const std::string& name, const Dataset& data) {
    std::ofstream out(folder_ / name);
    for (std::size_t r = 0; r < data.rows(); ++r) {
      out << data.labels[r];
      for (std::uint64_t e = data.row_begin[r]; e < data.row_begin[r + 1]; ++e)
        out << ' ' << data.fields[e] << ':' << data.ids[e] << ':' << data.values[e];
      out << '\n';
    }
    return (folder_ / name).string();
  }
  std::string parts() const { return (folder_ / "parts").string(); }
  TrainOptions options() const {
    return {
        .model = {.kind = GetParam(), .factors = 4}, .epochs = 6, .prior_factors = 0, .average = 0};
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("disk_test_" + std::to_string(getpid()));
};
INSTANTIATE_TEST_SUITE_P(Kinds, Disk,
                         testing::Values(ModelKind::kLogistic, ModelKind::kFm, ModelKind::kFfm),
                         [](const auto& i) { return name(i.param); });

TEST_P(Disk, LearnsWhatMemoryDoes) {
  const Dataset train = test::skewed_rows({.rows = 3000, .complete = false, .valued = true});
  const Dataset valid =
      test::skewed_rows({.rows = 600, .complete = false, .valued = true, .seed = 9});
  const std::string file = written("train", train);
  TrainingRun memory(read_file(file), valid, options());
  while (memory.next_step()) {
  }
  for (const std::size_t rows : {std::size_t{400}, std::size_t{100'000}}) {
    DiskRows on_disk({file}, parts(), {.rows_of_part = rows});
    EXPECT_EQ(on_disk.rows(), 3000u);
    EXPECT_GE(on_disk.parts(), 1u);
    EXPECT_THAT(on_disk.dictionary().ids(),
                testing::ElementsAreArray(memory.model().dictionary().ids()));
    DiskRun run(std::move(on_disk), valid, options());
    while (run.next_step()) {
    }
    ASSERT_EQ(run.reports().size(), memory.reports().size());
    const double ours = run.reports().back().validation->loss,
                 theirs = memory.reports().back().validation->loss;
    EXPECT_NEAR(ours, theirs, 0.03 * theirs) << rows << " rows a part";
    EXPECT_NEAR(run.reports()[0].train_loss, memory.reports()[0].train_loss, 0.05 * theirs);
  }
  EXPECT_FALSE(std::filesystem::exists(parts()));
}

// Small files are read whole at once, so several make several parts.
TEST_P(Disk, GoesThroughPartsInAnOrderOfEachEpoch) {
  std::vector<std::string> files;
  for (std::uint64_t seed : {1, 2, 3, 4})
    files.push_back(written("train" + std::to_string(seed),
                            test::skewed_rows({.rows = 500, .complete = false, .seed = seed})));
  DiskRows rows(files, parts(), {.rows_of_part = 500});
  ASSERT_EQ(rows.parts(), 4u);
  std::size_t entries = 0, folder_files = 0;
  for (std::size_t i = 0; i < rows.parts(); ++i) entries += rows.part(i).entries();
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(parts()))
    ++folder_files;
  EXPECT_EQ(folder_files, 4u);
  EXPECT_EQ(entries, read_files(files).entries());
  DiskRun run(std::move(rows), std::nullopt, options());
  int steps = 0;
  while (run.next_step()) ++steps;
  EXPECT_EQ(steps, 4 * 6);
  EXPECT_EQ(run.rows_trained(), 2000u * 6);
  EXPECT_LT(run.reports().back().train_loss, run.reports().front().train_loss);
}

TEST_P(Disk, LeavesNothingWhereItFails) {
  std::ofstream(folder_ / "bad") << "1 0:1:1\nx\n";
  EXPECT_THROW(DiskRows({(folder_ / "bad").string()}, parts()), Error);
  EXPECT_FALSE(std::filesystem::exists(parts()));
  // Nor does it take what is somebody else's.
  std::filesystem::create_directory(parts());
  std::ofstream(parts() + "/mine") << "kept";
  const std::string good = written("good", test::skewed_rows({.rows = 20}));
  EXPECT_THROW(DiskRows({good}, parts()), Error);
  EXPECT_TRUE(std::filesystem::exists(parts() + "/mine"));
  std::filesystem::remove_all(parts());
  TrainOptions options = this->options();
  options.positive_weight = 2;
  EXPECT_THROW(DiskRun(DiskRows({good}, parts()), std::nullopt, options), Error);
}

TEST_P(Disk, TakesOverWhatAKilledRunLeft) {
  std::filesystem::create_directory(parts());
  for (const char* name : {"/000000.cache", "/000007.cache", "/000008.cache.tmp"})
    std::ofstream(parts() + name) << "half a part";
  const std::string file = written("train", test::skewed_rows({.rows = 500}));
  {
    const DiskRows rows({file}, parts(), {.rows_of_part = 500});
    EXPECT_EQ(rows.part(0).rows(), 500u);
    EXPECT_FALSE(std::filesystem::exists(parts() + "/000007.cache"));
    // While they are in use nobody else gets them.
    EXPECT_THROW(DiskRows({file}, parts()), Error);
    EXPECT_EQ(rows.part(0).rows(), 500u);
  }
  EXPECT_FALSE(std::filesystem::exists(parts()));
}

// What a part becomes without a look at each entry is what a look would make of it, and all parts
// take the memory of one.
TEST_P(Disk, PreparesPartsInTheMemoryOfOne) {
  std::vector<std::string> files;
  for (const std::size_t rows : {500, 540})
    files.push_back(written("train" + std::to_string(rows),
                            test::skewed_rows({.rows = rows, .complete = false, .seed = rows})));
  const DiskRows rows(files, parts(), {.rows_of_part = 500});
  ASSERT_EQ(rows.parts(), 2u);
  Dataset data = rows.part(1, rows.part(0));
  EXPECT_EQ(data.rows(), 540u);
  EXPECT_LE(data.ids.capacity(), data.ids.size() * 11 / 10);
  const std::uint32_t* const memory = data.ids.data();
  data = rows.part(0, std::move(data));
  EXPECT_EQ(data.rows(), 500u);
  EXPECT_EQ(data.ids.data(), memory);
  ModelOptions of_model{.kind = GetParam(), .factors = 4};
  const Model model(of_model, rows.dictionary(),
                    has_fields(GetParam()) ? rows.fields() : std::vector<std::uint32_t>{});
  const Samples quick = model.prepare_slots(data, rows.distinct());
  for (std::uint32_t& id : data.ids) id = model.dictionary().ids()[id];
  const Samples whole = model.prepare(data);
  EXPECT_EQ(quick.row_begin, whole.row_begin);
  EXPECT_EQ(quick.slots, whole.slots);
  EXPECT_EQ(quick.values, whole.values);
  EXPECT_EQ(quick.fields, whole.fields);
  EXPECT_EQ(quick.distinct, whole.distinct);
}

// A part that was changed after it was written is found by its checksum, by the thread ahead.
TEST_P(Disk, ToldOfDamageByTheThreadThatReadsAhead) {
  const std::string file = written("train", test::skewed_rows({.rows = 500}));
  DiskRun run(DiskRows({file, file}, parts(), {.rows_of_part = 500}), std::nullopt, options());
  for (const auto& part : std::filesystem::directory_iterator(parts()))
    std::filesystem::resize_file(part.path(), std::filesystem::file_size(part.path()) / 2);
  EXPECT_THROW(
      {
        while (run.next_step()) {
        }
      },
      Error);
}

// What would be killed is told need and limit before text becomes parts, or before it is learnt.
TEST_P(Disk, SaysNeedAndLimitBeforeItBegins) {
  const std::string file = written("train", test::skewed_rows({.rows = 3000, .disjoint = true}));
  const std::vector<std::string> small(
      10, written("small", test::skewed_rows({.rows = 300, .disjoint = true})));
  const auto refused = [&](std::uint64_t bytes_left, int factors,
                           const std::vector<std::string>& files) {
    const std::uint64_t limit = memory_in_use() + bytes_left;
    TrainOptions large = options();
    large.model.factors = factors;
    try {
      DiskRun(DiskRows(files, parts(), {.read = {.memory_limit_bytes = limit}}), {}, large);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalid);
      EXPECT_THAT(error.what(),
                  testing::HasSubstr(fmt::format("{:.1f} MB is the limit",
                                                 static_cast<double>(limit) / (1 << 20))));
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused(4 << 20, 4, {file}), testing::HasSubstr("parts of 3000 rows need about 8."));
  // Of files smaller than what is read at a time the first stands for all.
  EXPECT_THAT(refused(4 << 20, 4, small), testing::HasSubstr("parts of 3000 rows need about 8."));
  // Roomy, as a sanitizer keeps memory that was given back.
  EXPECT_THAT(refused(96 << 20, 4, {file}), "");
  if (GetParam() == ModelKind::kLogistic) return;
  const std::string large = written("large", test::skewed_rows({.rows = 20'000, .disjoint = true}));
  EXPECT_THAT(refused(96 << 20, 256, {large}), testing::HasSubstr("the model and two parts"));
  EXPECT_FALSE(std::filesystem::exists(parts()));
}

// Of a group and those around it; version 1 and 2.
TEST(MemoryLimit, IsTheLeastOfTheGroups) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / ("cgroups_" + std::to_string(getpid()));
  const auto put = [&](const std::filesystem::path& file, const char* limit) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << limit << "\n";
  };
  put("memory/memory.limit_in_bytes", "9223372036854771712");
  put("memory/a/memory.limit_in_bytes", "5000");
  put("memory/a/b/memory.limit_in_bytes", "9000");
  put("jobs/memory.max", "3000");
  put("jobs/one/memory.max", "max");
  EXPECT_EQ(cgroup_limit("9:cpu:/a/b\n4:memory:/a/b\n0::/\n", root), 5000u);
  EXPECT_EQ(cgroup_limit("0::/jobs/one\n", root), 3000u);
  EXPECT_EQ(cgroup_limit("0::/jobs/two\n4:memory:/a\n", root), 3000u);
  EXPECT_EQ(cgroup_limit("0::/others\n", root), 0u);
  EXPECT_GT(memory_limit(), memory_in_use());
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace motley::wide
