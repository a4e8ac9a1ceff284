// Shows that a cache gives back the rows it was made of, is made anew when its source or options
// change, and that no truncated or damaged one is ever taken for data.
#include "wide/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "comm/error.h"
#include "wide/file/whole_file.h"
#include "wide/model.h"
#include "wide/read_cached.h"

namespace motley::wide {
namespace {

class Cache : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "motley_cache_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::vector<float> values_of(const Dataset& data) {
    std::vector<float> values;
    for (std::size_t e = 0; e < data.entries(); ++e) values.push_back(data.value(e));
    return values;
  }
  static void expect_same(const Dataset& a, const Dataset& b) {
    EXPECT_TRUE(a.ids == b.ids && values_of(a) == values_of(b) && a.labels == b.labels &&
                a.row_begin == b.row_begin && a.fields == b.fields && a.weights == b.weights);
    EXPECT_EQ(a.recipe, b.recipe);
    EXPECT_EQ(a.format, b.format);
  }
  std::string folder_;
};

// Rows that are alike in length and fields, in length alone, and in nothing; with values and
// without; of several pieces.
TEST_F(Cache, GivesBackTheRows) {
  std::string long_text;
  for (int i = 0; i < 300'000; ++i) long_text += "1 " + std::to_string(i) + ":1 999999:1\n";
  for (const std::string& text :
       {std::string("1 0:5:1 1:6:1\n0 0:7:1 1:8:1\n"),
        std::string("1 0:5:1 1:6:1\n0 0:7:2 2:8:1\n"), std::string("1 3:1\n0\n1 4:1 5:0.25\n"),
        std::string("1\n0\n"), std::string("label,a,w:weight\n1,x,2\n0,y,3\n"), long_text}) {
    const Dataset data = parse_text(text, "t");
    save_cache(data, path("c"), text.size());
    EXPECT_TRUE(is_cache(path("c")));
    std::uint64_t source = 0;
    expect_same(load_cache(path("c"), {.threads = 3}, {}, &source), data);
    EXPECT_EQ(source, text.size());
    const Dataset without = parse_text(text, "t", {.fields = false});
    EXPECT_TRUE(without.fields.empty());
    expect_same(load_cache(path("c"), {.fields = false}), without);
  }
}

// Values that are all 1 take no memory, and mean the same to a model, with features that it does
// not know, and beside rows with other values.
TEST_F(Cache, LeavesOutValuesThatAreAllOne) {
  const Dataset data = parse_text("1 1:1 2:1 4:1\n0\n0 3:1\n1 2:1 3:1\n", "t");
  save_cache(data, path("c"));
  Dataset loaded = load_cache(path("c"));
  EXPECT_TRUE(loaded.values.empty());
  const Model model({}, Dictionary({1, 2, 3}));
  const Samples a = model.prepare(data);
  const Samples b = model.prepare(loaded);
  EXPECT_TRUE(a.uniform && b.uniform);
  EXPECT_TRUE(a.values == b.values && a.slots == b.slots && a.row_begin == b.row_begin);
  const std::vector<std::uint64_t> last{3};
  EXPECT_THAT(values_of(rows_of(loaded, last)), testing::ElementsAre(1, 1));
  const Dataset more = parse_text("1 7:0.5\n", "t");
  append(loaded, more);
  EXPECT_THAT(values_of(loaded), testing::ElementsAre(1, 1, 1, 1, 1, 1, 0.5f));
  append(loaded, rows_of(load_cache(path("c")), last));
  EXPECT_THAT(values_of(loaded), testing::ElementsAre(1, 1, 1, 1, 1, 1, 0.5f, 1, 1));
}

TEST_F(Cache, OfTargetsIsRefusedWhereClassesAreAskedFor) {
  save_cache(parse_text("3.5 1:1\n", "t", {.labels = Labels::kReal}), path("c"));
  EXPECT_EQ(load_cache(path("c"), {.labels = Labels::kReal}).labels.at(0), 3.5f);
  EXPECT_THROW(load_cache(path("c")), Error);
}

TEST_F(Cache, IsMadeAnewWhenSourceOrOptionsChange) {
  write("t", "1 1:1\n0 2:1\n");
  expect_same(read_cached({path("t")}, path("c")), read_file(path("t")));
  const std::string first = read("c");
  expect_same(read_cached({path("t")}, path("c")), read_file(path("t")));
  EXPECT_EQ(read("c"), first);
  expect_same(read_cached({path("t")}, path("c"), {.bits = 8}), read_file(path("t"), {.bits = 8}));
  EXPECT_NE(read("c"), first) << "other options";
  write("t", "1 1:1\n0 3:1 4:1\n");
  expect_same(read_cached({path("t")}, path("c"), {.bits = 8}), read_file(path("t"), {.bits = 8}));
  write("c", "1 1:1\n");
  EXPECT_THROW(load_cache(path("c")), Error);
  EXPECT_THROW(read_cached({path("t")}, path("c")), Error) << "a file of somebody else's";
  EXPECT_EQ(read("c"), "1 1:1\n");
  std::filesystem::remove(path("c"));
  write("t", "1 0:1:1\n0 1:3:1 0:4:1\n");  // has all, also when made for who wants no fields
  EXPECT_TRUE(read_cached({path("t")}, path("c"), {.fields = false}).fields.empty());
  expect_same(load_cache(path("c")), read_file(path("t")));
  write("t", "1 1:1\n");  // and no cache of others need fit in memory
  EXPECT_THROW(load_cache(path("c"), {.memory_limit_bytes = 40}), Error);
  EXPECT_EQ(read_cached({path("t")}, path("c"), {.memory_limit_bytes = 40}).rows(), 1u);
}

// One byte of the source changes, but neither its size nor its time; or the time alone.
TEST_F(Cache, IsOfTheContentsOfItsSource) {
  std::string text;
  for (int i = 0; i < 60'000; ++i) text += "1 " + std::to_string(1'000'000 + i) + ":1\n";
  write("t", text);
  const auto written = std::filesystem::last_write_time(path("t"));
  read_cached({path("t")}, path("c"), {.threads = 2});
  const auto made = std::filesystem::last_write_time(path("c"));
  std::filesystem::last_write_time(path("t"), written + std::chrono::hours(1));
  read_cached({path("t")}, path("c"));
  EXPECT_EQ(std::filesystem::last_write_time(path("c")), made) << "used";
  for (const std::size_t at : {text.size() - 4, text.size() / 2 / 12 * 12 + 5, std::size_t{3}}) {
    text[at] = text[at] == '9' ? '8' : '9';
    write("t", text);
    std::filesystem::last_write_time(path("t"), written);
    expect_same(read_cached({path("t")}, path("c")), read_file(path("t")));
  }
  write("second", text);
  write("t", "0 5:1\n");
  const Dataset both = read_cached({path("t"), path("second")}, path("c"));
  EXPECT_EQ(both.labels.front(), 0);
  EXPECT_EQ(read_cached({path("second"), path("t")}, path("c")).labels.front(), 1) << "their order";
  EXPECT_THROW(read_cached({"/dev/null"}, path("c")), Error);
}

// A name that is too long, of which nobody can tell whether it exists.
TEST_F(Cache, IsRefusedWhereTheSystemRefusesAName) {
  write("t", "1 1:1\n");
  const std::string bad = path(std::string(300, 'x'));
  for (const auto& [source, cache] : {std::pair(bad, path("c")), std::pair(path("t"), bad)}) {
    try {
      read_cached({source}, cache);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_THAT(error.what(), testing::HasSubstr(bad));
    }
  }
}

// As by runs that make one cache at once: neither is in the other's way, whoever ends first.
TEST_F(Cache, MayBeWrittenByManyAtOnce) {
  for (const bool first_ends_first : {true, false}) {
    for (const char* name : {"made.tmp", "made.2.tmp", "made.5.tmp", "made.4.tmp", "made.3.tmp"})
      write(name, "what a killed run left");
    WholeFile first(path("made"));
    std::optional<WholeFile> second(std::in_place, path("made"));
    WholeFile given_up(path("made"));
    first.put("first");
    second->put("second");
    given_up.put("third");
    if (first_ends_first) first.commit();
    second->commit();
    EXPECT_EQ(read("made"), "second");
    if (!first_ends_first) first.commit();
    EXPECT_EQ(read("made"), first_ends_first ? "second" : "first");
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_),
                          std::filesystem::directory_iterator()),
            1)
      << "names left";
}

TEST_F(Cache, IsMadeAnewWhenDamaged) {
  write("t", "1 1:1 7:0.25\n0 2:1\n0\n");
  const Dataset data = read_cached({path("t")}, path("c"));
  const std::string whole = read("c");
  for (const std::size_t at : {std::size_t{30}, std::size_t{70}, whole.size() - 1}) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    write("c", bytes);
    std::vector<std::string> told;
    const LogSink log = [&told](LogLevel, const std::string& text) { told.push_back(text); };
    expect_same(read_cached({path("t")}, path("c"), {}, log), data);
    EXPECT_THAT(told, testing::ElementsAre(testing::AllOf(testing::HasSubstr(path("c")),
                                                          testing::HasSubstr("damaged"),
                                                          testing::HasSubstr("made anew"))));
    EXPECT_EQ(read("c"), whole);
    expect_same(read_cached({path("t")}, path("c"), {}, log), data);
    EXPECT_EQ(told.size(), 1u);
  }
}

// Every length and every byte of a small file.
TEST_F(Cache, IsRefusedWhenCutOrDamagedAnywhere) {
  save_cache(parse_text("label,a,b:number\n1,x,2\n0,y,3\n", "t"), path("c"));
  const std::string whole = read("c");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    write("bad", whole.substr(0, n));
    EXPECT_THROW(load_cache(path("bad")), Error) << n << " bytes";
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    write("bad", bytes);
    EXPECT_THROW(load_cache(path("bad")), Error) << "byte " << i;
  }
  write("bad", whole + "x");
  EXPECT_THROW(load_cache(path("bad")), Error);
}

}  // namespace
}  // namespace motley::wide
