// Shows that libsvm and libffm text is read exactly, and that every malformed input is an error
// that names the place, or has its documented meaning.
#include "wide/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "comm/error.h"

namespace motley::wide {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Parses a copy that ends where its memory ends, so that AddressSanitizer sees a read beyond it.
Dataset parse(const std::string& text, const std::string& name, const ReadOptions& options = {}) {
  const std::vector<char> exact(text.begin(), text.end());
  return parse_text({exact.data(), exact.size()}, name, options);
}

std::string error_of(const std::string& text, const ReadOptions& options = {}) {
  try {
    parse(text, "train.txt", options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalid);
    return e.what();
  }
  return "no error";
}

TEST(Reader, ReadsLibsvm) {
  const Dataset d = parse_text("1 3:0.5 9:-2e3\n0 4:1\n", "t");
  EXPECT_EQ(d.format, Format::kLibsvm);
  EXPECT_THAT(d.labels, ElementsAre(1, 0));
  EXPECT_THAT(d.row_begin, ElementsAre(0, 2, 3));
  EXPECT_THAT(d.ids, ElementsAre(3, 9, 4));
  EXPECT_THAT(d.values, ElementsAre(0.5f, -2000.f, 1.f));
  EXPECT_THAT(d.fields, IsEmpty());
}

TEST(Reader, ReadsLibffm) {
  const Dataset d = parse_text("-1 0:3:1 7:9:.25\n+1 1:4:1.5", "t");
  EXPECT_EQ(d.format, Format::kLibffm);
  EXPECT_THAT(d.labels, ElementsAre(0, 1));
  EXPECT_THAT(d.ids, ElementsAre(3, 9, 4));
  EXPECT_THAT(d.fields, ElementsAre(0, 7, 1));
  EXPECT_THAT(d.values, ElementsAre(1.f, 0.25f, 1.5f));
}

struct Accepted {
  const char* name;
  std::string text;
  std::size_t rows;
  std::size_t entries;
};
class Accepts : public testing::TestWithParam<Accepted> {};
TEST_P(Accepts, WithItsDocumentedMeaning) {
  const Dataset d = parse(GetParam().text, "t");
  EXPECT_EQ(d.rows(), GetParam().rows);
  EXPECT_EQ(d.entries(), GetParam().entries);
  EXPECT_EQ(d.row_begin.size(), d.rows() + 1);
  EXPECT_EQ(d.row_begin.back(), d.entries());
}
INSTANTIATE_TEST_SUITE_P(
    Inputs, Accepts,
    testing::Values(Accepted{"LabelOnly", "1\n0\n", 2, 0},
                    Accepted{"LabelOnlyFirst", "1\n0 1:2:3\n", 2, 1},
                    Accepted{"BlankLines", "\n1 1:1\n\n \t\n0 2:1\n\n", 2, 2},
                    Accepted{"Comments", "# header\n1 1:1 # tail\n0 2:1#x\n", 2, 2},
                    Accepted{"Crlf", "1 1:1\r\n0 2:1\r\n\r\n", 2, 2},
                    Accepted{"NoFinalNewline", "1 1:1\n0 2:1", 2, 2},
                    Accepted{"TrailingBlanks", "1 1:1 \n0 2:1\t \n", 2, 2},
                    Accepted{"Tabs", "1\t1:1\t2:1\n", 1, 2}, Accepted{"IndexZero", "1 0:1\n", 1, 1},
                    Accepted{"LargestIndex", "1 4294967295:1\n", 1, 1},
                    Accepted{"Unsorted", "1 9:1 3:1\n", 1, 2},
                    Accepted{"SameIndexInTwoFields", "1 0:7:1 1:7:1\n", 1, 2},
                    Accepted{"TinyValue", "1 1:1e-50 2:1e-400\n", 1, 2},
                    Accepted{"ManyDigits", "1 1:0.12345678901234567890 2:00000000000000000001\n", 1,
                             2},
                    Accepted{"ByteOrderMark",
                             "\xef\xbb\xbf"
                             "1 1:1\n",
                             1, 1}),
    [](const auto& i) { return i.param.name; });

struct Refused {
  const char* name;
  std::string text;
  std::vector<const char*> facts;  // all of them in the message
};
class Refuses : public testing::TestWithParam<Refused> {};
TEST_P(Refuses, NamingThePlace) {
  const std::string message = error_of(GetParam().text);
  for (const char* fact : GetParam().facts) EXPECT_THAT(message, HasSubstr(fact));
}
INSTANTIATE_TEST_SUITE_P(
    Inputs, Refuses,
    testing::Values(
        Refused{"Empty", "", {"train.txt", "no rows"}},
        Refused{"OnlyBlank", "\n \n# x\n", {"train.txt", "no rows"}},
        Refused{
            "NanValue", "1 1:1\n0 2:nan\n", {"train.txt:2:", "2:nan", "column 3", "not finite"}},
        Refused{"InfValue", "1 1:-inf\n", {"train.txt:1:", "-inf", "not finite"}},
        Refused{"HugeValue", "1 1:1e39\n", {"train.txt:1:", "1e39", "3.4e38"}},
        Refused{"HugerValue", "1 1:1e999\n", {"train.txt:1:", "1e999", "3.4e38"}},
        Refused{"MissingValue", "1 1:\n", {"train.txt:1:", "\"1:\"", "value"}},
        Refused{"MissingValueAtTheEnd", "1 1:", {"train.txt:1:", "\"1:\"", "value"}},
        Refused{"MissingLibffmValueAtTheEnd", "1 1:2:", {"train.txt:1:", "value"}},
        Refused{"MissingIndexAtTheEnd", "1 1:1:1 1:", {"train.txt:1:", "\"1:\"", "index"}},
        Refused{"NoColon", "1 17\n", {"train.txt:1:", "\"17\"", "index:value"}},
        Refused{"WordValue", "1 1:x\n", {"train.txt:1:", "1:x", "value"}},
        Refused{"TwoSigns", "1 1:+-3\n", {"train.txt:1:", "value"}},
        Refused{"HexValue", "1 1:0x10\n", {"train.txt:1:", "value"}},
        Refused{"Index2To32", "1 4294967296:1\n", {"4294967296", "4294967295", "2^32 - 1"}},
        Refused{"Index2To40",
                "0 1:1\n1 1099511627776:1\n",
                {"train.txt:2:", "1099511627776", "4294967295"}},
        Refused{
            "Index2To70", "1 1180591620717411303424:1\n", {"1180591620717411303424", "4294967295"}},
        Refused{"NegativeIndex", "1 -5:1\n", {"train.txt:1:", "-5:1", "negative index"}},
        Refused{"FractionalIndex", "1 1.5:1\n", {"train.txt:1:", "1.5:1", "whole number"}},
        Refused{"MissingIndex", "1 :1\n", {"train.txt:1:", "\":1\""}},
        Refused{"Duplicate", "1 1:1 2:1 1:3\n", {"train.txt:1:", "index 1 appears twice"}},
        Refused{"DuplicateInField", "1 0:7:1 0:7:1\n", {"index 7 appears twice", "field 0"}},
        Refused{"LibffmInLibsvm", "1 1:1\n0 1:2:1\n", {"train.txt:2:", "1:2:1", "libsvm"}},
        Refused{
            "LibsvmInLibffm", "1 1:1:1\n0 1:2\n", {"train.txt:2:", "\"1:2\"", "field:index:value"}},
        Refused{"FourParts", "1 1:2:3:4\n", {"train.txt:1:", "libffm"}},
        Refused{"LargeField", "1 4294967296:1:1\n", {"field", "4294967295"}},
        Refused{"MissingLabel", "1:1 2:1\n", {"train.txt:1:", "1:1", "label"}},
        Refused{"WordLabel", "label 1:1\n", {"train.txt:1:", "label"}},
        Refused{"CsvWithoutHeader", "1,0,3\n1,0,3\n", {"train.txt:1:", "\"1\"", "header"}},
        Refused{"NanLabel", "nan 1:1\n", {"train.txt:1:", "not finite"}},
        Refused{"LabelTwo", "1 1:1\n2 1:1\n", {"train.txt:2:", "\"2\"", "two classes"}},
        Refused{"ThreeLabels", "1 1:1\n0 1:1\n-1 1:1\n", {"train.txt:3:", "line 2"}},
        Refused{"Comma", "1,1:1\n", {"train.txt:1:"}},
        Refused{"Gzip", "\x1f\x8b\x08", {"train.txt:1:", "gzip"}},
        Refused{"Binary",
                "\x7f"
                "ELF\x02\x01\x01",
                {"train.txt:1:", "\\x7fELF"}},
        Refused{"NulByte", std::string("1 1:1\n1 1:1\0\n", 13), {"train.txt:2:", "NUL"}},
        Refused{"OldMacLines", "1 1:1\r0 2:1\r", {"train.txt:1:", "value"}}),
    [](const auto& i) { return i.param.name; });

TEST(Reader, TakesAnyLabelAsRealAndNoneWhereOptional) {
  EXPECT_THAT(parse_text("2.5 1:1\n-7 1:1\n", "t", {.labels = Labels::kReal}).labels,
              ElementsAre(2.5f, -7.f));
  const Dataset d = parse_text("9 1:1\n1:1 2:1\n\n3\n", "t", {.labels = Labels::kOptional});
  EXPECT_THAT(d.labels, ElementsAre(0, 0, 0));
  EXPECT_THAT(d.row_begin, ElementsAre(0, 1, 3, 3));
}

TEST(Reader, HoldsAFileToTheFormatAskedFor) {
  EXPECT_THAT(error_of("1 1:1\n", {.format = Format::kLibffm}), HasSubstr("field:index:value"));
  EXPECT_THAT(error_of("1 1:1:1\n", {.format = Format::kLibsvm}), HasSubstr("libsvm"));
}

// Values of up to 15 digits take a path of their own; both must round as strtod does.
// In rows of every size about the limits of what looks for them, among others with the same ids.
TEST(Reader, FindsAnIndexThatStandsTwiceInAnyOrder) {
  for (const std::uint64_t n : {3u, 40u, 511u, 512u, 513u, 900u}) {
    std::string row = "1";
    std::vector<std::uint32_t> ids;
    for (std::uint64_t i = 0; i < n; ++i) {
      ids.push_back(static_cast<std::uint32_t>((i * 7919 + n) % 65537 * 1024));
      row += " " + std::to_string(ids.back()) + ":1";
    }
    const Dataset d = parse(row + "\n" + row + "\n", "t");
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), d.ids.begin() + static_cast<int>(n)));
    const std::string again = " " + std::to_string(ids[n / 3]) + ":1\n";
    EXPECT_THAT(error_of(row + "\n" + row + again),
                AllOf(HasSubstr("train.txt:2:"), HasSubstr("appears twice")));
  }
}

TEST(Reader, RoundsValuesCorrectly) {
  for (const char* text : {"0.1", "3.14159265358979", "123456789012345", "0.000001", "1e-7", "-0",
                           "0.30000000000000004", "16777217", "33554435.5", "9007199254740993"}) {
    const Dataset d = parse_text("1 1:" + std::string(text) + "\n", "t");
    EXPECT_EQ(d.values.at(0), static_cast<float>(std::strtod(text, nullptr))) << text;
  }
}

class ReaderFile : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string path_ = testing::TempDir() + "motley_reader_" + std::to_string(getpid()) + ".txt";
};

// 3 MiB: a line longer than two of the reader's blocks, and lines that straddle blocks.
TEST_F(ReaderFile, ReadsLinesThatSpanBlocks) {
  std::string text = "1";
  for (int i = 0; i < 300'000; ++i) text += " " + std::to_string(i) + ":1";
  text += "\n";
  for (int i = 0; i < 50'000; ++i) text += "0 5:1 77:0.5\n";
  write(text);
  const Dataset d = read_file(path_);
  EXPECT_EQ(d.rows(), 50'001u);
  EXPECT_EQ(d.entries(), 400'000u);
  EXPECT_EQ(d.ids.at(299'999), 299'999u);
  EXPECT_EQ(d.values.back(), 0.5f);
}

TEST_F(ReaderFile, RefusesWhatDoesNotFitInMemoryBeforeAllocating) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "1 1:1 2:1\n";
  write(text);
  try {
    read_file(path_, {.memory_limit_bytes = 1 << 20});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalid);
    EXPECT_THAT(e.what(), AllOf(HasSubstr(path_), HasSubstr("GiB")));
  }
  EXPECT_EQ(read_file(path_).rows(), 200'000u);
}

// What parts of `paths`, one after the other, hold.
Dataset in_parts(const std::vector<std::string>& paths, int parts, const ReadOptions& options) {
  Dataset all = read_part(paths, 0, parts, options);
  for (int i = 1; i < parts; ++i) append(all, read_part(paths, i, parts, options));
  return all;
}

void expect_same(const Dataset& a, const Dataset& b, int parts) {
  EXPECT_EQ(a.format, b.format);
  EXPECT_EQ(a.recipe, b.recipe);
  EXPECT_EQ(a.row_begin, b.row_begin) << parts << " parts";
  EXPECT_EQ(a.labels, b.labels) << parts << " parts";
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.fields, b.fields);
}

// Ranges begin and end before, in and behind lines, blank ones, comments and headers, and there are
// more of them than bytes.
TEST_F(ReaderFile, ReadsEachRowInOnePart) {
  const std::string tokens = "\xef\xbb\xbf# none\r\n\n1 3:0.5 9:1\n\r\n0\n1 4:1 # a\n0 7:2";
  const std::string csv = "\n\r\nlabel,a,b\n1,x,y\n0,z,\"y,y\"\n",
                    moved = "b,label,a\ny,1,x\nq,0,r";
  const std::string other = path_ + ".2";
  for (const bool columns : {false, true}) {
    write(columns ? csv : tokens);
    std::ofstream(other) << (columns ? moved : tokens);
    const std::vector<std::string> paths{path_, other};
    ASSERT_TRUE(can_be_read_in_parts(paths));
    const ReadOptions options;
    const Dataset whole = read_files(paths, options);
    for (int parts = 1; parts < 120; parts += parts < 40 ? 1 : 9)
      expect_same(in_parts(paths, parts, options), whole, parts);
  }
  std::remove(other.c_str());
}

// Two of them longer than what is read at once; threads of a part take turns.
TEST_F(ReaderFile, ReadsPartsOfLongLines) {
  std::string text;
  for (int row = 0; row < 20'000; ++row) {
    text += row % 3 == 0 ? "1" : "0";
    const int entries = row == 40 || row == 15'000 ? 50'000 : row % 40;
    for (int e = 0; e < entries; ++e) text += " " + std::to_string(e) + ":" + std::to_string(row);
    text += "\n";
  }
  write(text);
  const Dataset whole = read_file(path_);
  for (const int parts : {2, 3, 16, 61}) {
    expect_same(in_parts({path_}, parts, {.threads = 2}), whole, parts);
    const auto rows = static_cast<double>(read_part({path_}, parts / 2, parts).rows());
    EXPECT_LT(rows, 1.5 * static_cast<double>(whole.rows()) / parts);
  }
}

TEST_F(ReaderFile, NamesTheLineThatIsBadInAPart) {
  std::string text = "1 1:1\n0 2:1\n";
  for (int i = 0; i < 12; ++i) text += text.substr(0, 12);
  write(text + "1 oops\n" + text);
  int refused = 0;
  for (int part = 0; part < 5; ++part) {
    try {
      read_part({path_}, part, 5);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(path_ + ":27: "));
      ++refused;
    }
  }
  EXPECT_EQ(refused, 1);
}

TEST_F(ReaderFile, NamesAFileThatIsNotThere) {
  try {
    read_file("/nonexistent/train.txt");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kIo);
    EXPECT_THAT(e.what(), HasSubstr("/nonexistent/train.txt"));
  }
}

TEST_F(ReaderFile, RefusesADirectory) { EXPECT_THROW(read_file(testing::TempDir()), Error); }

}  // namespace
}  // namespace motley::wide
