// Shows that compressed files, several files and any number of threads give the same rows, and that
// files that were cut or damaged are refused.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "comm/error.h"
#include "wide/reader.h"
#include "wide/row_parts.h"

namespace motley::wide {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "motley_files_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    for (int i = 0; i < 100'000; ++i) {
      text_ += std::to_string(i % 2) + " " + std::to_string(i % 977) + ":1 " +
               std::to_string(1000 + i % 31) + ":0.5\n";
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }
  std::string gzip(const std::string& bytes) const {
    const std::string path = folder_ + "/scratch.gz";
    const gzFile file = gzopen(path.c_str(), "wb1");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::string zstd(const std::string& bytes) {
    std::string out(ZSTD_compressBound(bytes.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1));
    return out;
  }
  // A member with these header fields (FTEXT 1, FHCRC 2, FEXTRA 4, FNAME 8, FCOMMENT 16).
  static std::string with_header(int flags, const std::string& plain_member) {
    std::string header = plain_member.substr(0, 10);
    header[3] = static_cast<char>(flags);
    if ((flags & 4) != 0) header += std::string("\x05\0ab\0cd", 7);
    if ((flags & 8) != 0) header += std::string("n.txt\0", 6);
    if ((flags & 16) != 0) header += std::string("said\0", 5);
    if ((flags & 2) != 0) {
      const auto crc = crc32(0, reinterpret_cast<const Bytef*>(header.data()),
                             static_cast<unsigned>(header.size()));
      header += {static_cast<char>(crc & 0xff), static_cast<char>(crc >> 8 & 0xff)};
    }
    return header + plain_member.substr(10);
  }
  // What gives each of these few bytes by itself.
  static int by_byte(const std::string& bytes) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_DIRECT | O_NONBLOCK), 0);
    EXPECT_GE(fcntl(ends[1], F_SETPIPE_SZ, 1 << 20), 1 << 20);
    for (const char& byte : bytes) EXPECT_EQ(::write(ends[1], &byte, 1), 1);
    close(ends[1]);
    return ends[0];
  }
  std::string refused(const std::string& bytes) const {
    try {
      read_file(write("bad", bytes));
      return "no error";
    } catch (const Error& e) {
      return e.what();
    }
  }
  static void expect_same(const Dataset& a, const Dataset& b) {
    EXPECT_TRUE(a.ids == b.ids && a.values == b.values && a.labels == b.labels &&
                a.row_begin == b.row_begin && a.fields == b.fields);
  }

  std::string folder_;
  std::string text_;
};

TEST_F(Files, GiveTheSameRowsInEveryWay) {
  const Dataset all = parse_text(text_, "t");
  const std::size_t half = text_.find('\n', text_.size() / 2) + 1;
  const std::string a = write("a", text_.substr(0, half));
  const std::string b = write("b", text_.substr(half));
  for (const int threads : {1, 3}) {
    expect_same(read_file(write("plain", text_), {.threads = threads}), all);
    expect_same(read_file(write("gz", gzip(text_)), {.threads = threads}), all);
    expect_same(read_file(write("zst", zstd(text_)), {.threads = threads}), all);
    expect_same(read_files({a, b}, {.threads = threads}), all);
  }
  // Members one after the other, as `cat a.gz b.gz` makes them.
  expect_same(read_file(write("gz2", gzip(text_.substr(0, half)) + gzip(text_.substr(half)))), all);
  expect_same(read_file(write("zst2", zstd(text_.substr(0, half)) + zstd(text_.substr(half)))),
              all);
}

// What a file's first piece says of its size says nothing of the files before it.
TEST_F(Files, AreHeldToTheLimitOfMemoryByWhatTheyHoldThemselves) {
  const std::size_t half = text_.find('\n', text_.size() / 2) + 1;
  const std::string a = text_.substr(0, half), b = text_.substr(half);
  const std::uint64_t bytes = 100'000 * 12 + 200'000 * 8;  // of rows, and of their entries
  for (const auto& files : {std::vector{write("a", a), write("b", b)},
                            std::vector{write("az", gzip(a)), write("bz", gzip(b))}}) {
    EXPECT_EQ(read_files(files, {.memory_limit_bytes = bytes * 5 / 4}).rows(), 100'000u);
    EXPECT_THROW(read_files(files, {.memory_limit_bytes = bytes * 3 / 4}), Error);
  }
}

// Instead of by twice as much again and again, which for these 6.2 pieces ends with 1.6 times as
// much: of a packed file, too, whose size is guessed.
TEST_F(Files, GetTheirRoomAtOnce) {
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < 148'000; ++i) {
    text += "1 " + std::to_string(100'000 + random() % 900'000) + ":1\n";
  }
  for (const std::string& bytes : {text, gzip(text), zstd(text)}) {
    const Dataset data = read_file(write("t", bytes));
    EXPECT_LT(data.ids.capacity(), data.ids.size() * 7 / 5);
  }
}

// Errors are those of one thread, wherever the piece with the bad line begins.
TEST_F(Files, NameTheFirstBadLineOnAnyNumberOfThreads) {
  std::string bad = text_;
  bad += "1 x:1\n" + text_ + "1 y:1\n";
  const std::string path = write("bad", bad);
  for (const int threads : {1, 2, 5}) {
    try {
      read_file(path, {.threads = threads});
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("bad:100001: \"x:1\"")) << threads;
    }
  }
}

TEST_F(Files, ThatAreCutOrDamagedWhileCompressedAreRefused) {
  for (std::string bytes : {gzip(text_), zstd(text_)}) {
    const std::string cut = write("cut", bytes.substr(0, bytes.size() / 2));
    const std::string late = write("late", bytes.substr(0, bytes.size() - 1));
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x55);
    const std::string flipped = write("flipped", bytes);
    for (const std::string& path : {cut, late, flipped}) {
      try {
        read_file(path);
        FAIL() << "no error";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kInvalid);
        EXPECT_THAT(e.what(), HasSubstr(path));
      }
    }
  }
}

// Its header, and the checksum and size at its end. What follows a member must be one.
TEST_F(Files, OfGzipAreCheckedToTheirEnds) {
  const std::string whole = gzip(text_);
  for (const std::size_t at : {std::size_t{2}, whole.size() - 8, whole.size() - 1}) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    EXPECT_THAT(refused(bytes), HasSubstr("gzip data is damaged")) << at;
  }
  EXPECT_THAT(refused(whole + "1 1:1\n0 2:1\n"), HasSubstr("gzip data is damaged (no header)"));
  for (const std::size_t left : {4, 9, 11, 18}) {
    EXPECT_THAT(refused(whole + whole.substr(0, left)), HasSubstr("truncated")) << left;
  }
}

// Every set of the fields that a header may have, in members that follow one another.
TEST_F(Files, OfGzipMayHaveAnyHeaderAndComeByteByByte) {
  const Dataset once = parse_text("1 1:1\n0 2:1\n", "t");
  const Dataset twice = parse_text("1 1:1\n0 2:1\n1 1:1\n0 2:1\n", "t");
  for (int flags = 0; flags < 32; ++flags) {
    const std::string member = with_header(flags, gzip("1 1:1\n0 2:1\n"));
    expect_same(read_file(write("gz", member)), once);
    for (const std::string& bytes : {member + member, member + member + std::string(9, '\0')}) {
      const int pipe = by_byte(bytes);
      expect_same(read_file("/dev/fd/" + std::to_string(pipe)), twice);
      close(pipe);
    }
    if ((flags & 2) == 0) continue;
    std::string bad = member;
    bad[4] = static_cast<char>(bad[4] ^ 1);  // its time, which only that checksum is of
    EXPECT_THAT(refused(bad), HasSubstr("the checksum of its header differs")) << flags;
  }
  std::string reserved = gzip("1 1:1\n");
  reserved[3] = 0x20;
  EXPECT_THAT(refused(reserved), HasSubstr("unknown flags"));
}

// As tapes pad them.
TEST_F(Files, OfGzipMayEndInZerosOnly) {
  const Dataset all = parse_text(text_, "t");
  const std::string padded = gzip(text_) + std::string(1'000'000, '\0');
  expect_same(read_file(write("gz", padded)), all);
  for (const std::string& more : {std::string("x"), gzip("1 1:1\n")}) {
    EXPECT_THAT(refused(padded + more), HasSubstr("more than zeros behind its end"));
  }
}

TEST_F(Files, ThatAreMissingAreNamedWhereTheyAreReadInParts) {
  try {
    RowParts({folder_ + "/none"}, {});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kIo);
    EXPECT_THAT(e.what(), HasSubstr(folder_ + "/none"));
  }
}

// Rows without features, in more than one piece, stand before and behind those that show it.
TEST_F(Files, HaveOneFormatInAllParts) {
  std::string bare;
  for (int i = 0; i < 200'000; ++i) bare += i % 2 == 0 ? "1\n" : "0\n";
  const std::string path = write("bare", "\xef\xbb\xbf" + bare + "1 0:3:1\n0 1:4:1\n" + bare);
  const Dataset all = read_file(path);
  ASSERT_EQ(all.rows(), 400'002u);
  for (const int threads : {1, 2}) {
    std::vector<float> labels;
    for (int part = 0; part < 5; ++part) {
      const Dataset some = read_part({path}, part, 5, {.threads = threads});
      EXPECT_EQ(some.format, Format::kLibffm) << part;
      EXPECT_EQ(some.recipe, all.recipe) << part;
      labels.insert(labels.end(), some.labels.begin(), some.labels.end());
    }
    EXPECT_TRUE(std::ranges::equal(labels, all.labels));
  }
}

// The need that is told is that of the part.
TEST_F(Files, AreNotReadWholeWhereAPartExceedsTheLimit) {
  const std::string path = write("plain", text_);
  try {
    read_part({path}, 1, 4, {.memory_limit_bytes = 600'000});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalid);
    EXPECT_THAT(e.what(), HasSubstr("about 25"));
  }
}

TEST_F(Files, MayHaveWeightsBesideThem) {
  Dataset data = parse_text("1 1:1\n0 2:1\n", "t");
  read_weights(write("w", "2\n0.5\n"), data);
  EXPECT_THAT(data.weights, ElementsAre(2, 0.5f));
  EXPECT_THROW(read_weights(write("w", "2\n"), data), Error);
  EXPECT_THROW(read_weights(write("w", "2\n-1\n"), data), Error);
}

}  // namespace
}  // namespace motley::wide
