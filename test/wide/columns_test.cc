// Shows that CSV, Criteo and Avazu text becomes the features that schema.h promises, that malformed
// columns are errors that name the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "comm/error.h"
#include "wide/read/buckets.h"
#include "wide/read/number.h"
#include "wide/reader.h"

namespace motley::wide {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

std::string error_of(const std::string& text, const ReadOptions& options = {}) {
  try {
    const std::vector<char> exact(text.begin(), text.end());
    parse_text({exact.data(), exact.size()}, "train.csv", options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalid);
    return e.what();
  }
  return "no error";
}

// What the entries of row `r` are of, in order.
std::vector<std::string> named(const Dataset& data, std::size_t r) {
  std::vector<std::string> names;
  for (auto e = data.row_begin[r]; e < data.row_begin[r + 1]; ++e) {
    names.push_back(data.names.at(data.ids[e]));
  }
  return names;
}

TEST(Columns, AreWhatTheSchemaSays) {
  const Dataset d = parse_text(
      "click,id,hour,price,age,views,tags,w,site\n"
      "1,77,14102100,9.5,30,8,a|b|a,2,x\n"
      "0,78,14102123,,,,,0.5,\n",
      "t",
      {.columns = parse_columns("click:label,id:skip,hour:hour,price:log,age:number,views:bucket,"
                                "tags:list,w:weight"),
       .names = true});
  EXPECT_EQ(d.format, Format::kCsv);
  EXPECT_THAT(d.labels, ElementsAre(1, 0));
  EXPECT_THAT(d.weights, ElementsAre(2, 0.5f));
  EXPECT_THAT(named(d, 0), ElementsAre("hour=00", "price", "age", "views=bucket 6", "tags=a",
                                       "tags=b", "site=x"));
  EXPECT_THAT(named(d, 1), ElementsAre("hour=23", "views=(empty)", "site=(empty)"));
  EXPECT_FLOAT_EQ(d.values[1], std::log1p(9.5f));
  EXPECT_EQ(d.values[2], 30);
  EXPECT_THAT(std::vector<std::uint32_t>(d.fields.begin(), d.fields.begin() + 7),
              ElementsAre(0, 1, 2, 3, 4, 4, 5));
}

// A model's recipe reads rows of the same text to the same features, whatever the order of columns.
TEST(Columns, AreFoundByNameWhenReadAlike) {
  const Dataset train = parse_text("label,a,b\n1,x,1\n0,y,2\n", "t");
  const Dataset test =
      parse_text("b,extra,a\n1,?,x\n", "t", alike(train.recipe, {.labels = Labels::kOptional}));
  EXPECT_THAT(test.ids, UnorderedElementsAre(train.ids[0], train.ids[1]));
  EXPECT_EQ(test.fields[1], train.fields[0]);
  EXPECT_THAT(error_of("a,c\nx,1\n", alike(train.recipe, {.labels = Labels::kOptional})),
              AllOf(HasSubstr("train.csv:1:"), HasSubstr("\"b\"")));
}

TEST(Columns, TakeTypesFromTheHeaderQuotesAndOtherDelimiters) {
  const Dataset d =
      parse_text("y;\"a;1\":number;b\r\n1;\"2\";\"say \"\"x\"\"; y\"\r\n\r\n0;3;\"\"\r\n", "t",
                 {.format = Format::kCsv, .names = true});
  EXPECT_THAT(named(d, 0), ElementsAre("a;1", "b=say \"x\"; y"));
  EXPECT_EQ(d.values[0], 2);
  EXPECT_EQ(d.rows(), 2u);
}

TEST(Columns, AreKnownByTheirHeader) {
  EXPECT_EQ(parse_text("label\ta b\tc\n1\tx\ty\n", "t").entries(), 2u);
  EXPECT_EQ(parse_text("a;label\n1;1\n", "t").format, Format::kCsv);
  EXPECT_EQ(parse_text("1\t2:1\n", "t").format, Format::kLibsvm);
}

TEST(Columns, NeedNoHeaderWhereTheSchemaNamesAll) {
  const ReadOptions options{.format = Format::kCsv,
                            .columns = parse_columns("y:label,a:category,b:number")};
  const Dataset d = parse_text("1,x,2\n0,z,3\n", "t", options);
  EXPECT_EQ(d.rows(), 2u);
  EXPECT_EQ(d.entries(), 4u);
  EXPECT_EQ(parse_text("x,2\n", "t", alike(d.recipe, {.labels = Labels::kOptional})).ids[0],
            d.ids[0]);
}

TEST(Columns, ReadCriteo) {
  std::string row = "1\t1\t-1\t";
  for (int i = 4; i <= 13; ++i) row += "\t" + std::to_string(100 * i);
  for (int i = 1; i <= 26; ++i) row += "\tab" + std::to_string(i);
  const Dataset d = parse_text(row + "\n", "t", {.names = true});
  EXPECT_EQ(d.format, Format::kCriteo);
  EXPECT_EQ(d.entries(), 39u);
  EXPECT_EQ(named(d, 0)[0], "I1=bucket 1");
  EXPECT_EQ(named(d, 0)[1], "I2=bucket -1");
  EXPECT_EQ(named(d, 0)[2], "I3=(empty)");
  EXPECT_EQ(named(d, 0)[3], "I4=bucket 37");
  EXPECT_EQ(named(d, 0)[38], "C26=ab26");
  const Dataset unlabelled =
      parse_text(row.substr(2) + "\n", "t", alike(d.recipe, {.labels = Labels::kOptional}));
  EXPECT_EQ(unlabelled.ids, d.ids);
  EXPECT_EQ(unlabelled.unlabelled_cells, 39u);
  EXPECT_EQ(d.unlabelled_cells, 0u);
}

TEST(Columns, ReadAvazu) {
  const Dataset d =
      parse_text("id,click,hour,C1,site_id\n123,0,14102100,1005,1fbe01fe\n124,1,14102107,1005,9a\n",
                 "t", {.names = true});
  EXPECT_EQ(d.format, Format::kAvazu);
  EXPECT_THAT(d.labels, ElementsAre(0, 1));
  EXPECT_THAT(named(d, 1), ElementsAre("hour=07", "C1=1005", "site_id=9a"));
  const Dataset test = parse_text("id,hour,C1,site_id\n9,14102107,1005,9a\n", "t",
                                  alike(d.recipe, {.labels = Labels::kOptional}));
  EXPECT_THAT(test.ids, ElementsAre(d.ids[3], d.ids[4], d.ids[5]));
}

TEST(Columns, HashToTheBitsAskedFor) {
  std::string text = "y,a\n";
  for (int i = 0; i < 1000; ++i) text += "1,v" + std::to_string(i) + "\n";
  const Dataset few = parse_text(text, "t", {.bits = 4});
  EXPECT_LT(*std::max_element(few.ids.begin(), few.ids.end()), 16u);
  Dataset all = parse_text(text, "t");
  std::sort(all.ids.begin(), all.ids.end());
  EXPECT_EQ(std::unique(all.ids.begin(), all.ids.end()) - all.ids.begin(), 1000);
}

void expect_alike(const Dataset& quick, const Dataset& slow) {
  EXPECT_EQ(quick.ids, slow.ids);
  EXPECT_EQ(quick.fields, slow.fields);
  EXPECT_EQ(quick.values, slow.values);
  EXPECT_EQ(quick.labels, slow.labels);
  EXPECT_EQ(quick.row_begin, slow.row_begin);
}

// Names are kept by a slower way. Cells of all lengths, of every kind that ends the quick one.
TEST(Columns, AreTheSameByTheQuickWay) {
  std::mt19937_64 random(7);
  std::string text = "y,a,b,c,d:number,e,f\n";
  for (int row = 0; row < 400; ++row) {
    text += row % 2 == 0 ? "1" : "0";
    for (int cell = 0; cell < 6; ++cell) {
      std::string content = cell == 3 ? std::to_string(row) : "";
      for (auto n = random() % 20; cell != 3 && n > 0; --n) content += "ab\xe9 z'7|"[random() % 8];
      text += random() % 9 == 0 ? ",\"" + content + "\"" : "," + content;
    }
    text += row % 3 == 0 ? "\r\n" : "\n";
  }
  const Dataset quick = parse_text(text, "t");
  EXPECT_EQ(quick.rows(), 400u);
  expect_alike(quick, parse_text(text, "t", {.names = true}));
}

// Numbers in every form, and labels in more than the plain one.
TEST(Columns, OfCriteoAreTheSameByTheQuickWay) {
  std::mt19937_64 random(8);
  const auto number = [&random] {
    constexpr const char* kForms[] = {"", "-0", "+5", "2.5", "-1.5", "007", "1e3", "\"12\""};
    const std::uint64_t drawn = random() >> random() % 64;
    if (random() % 4 == 0) return std::string(kForms[drawn % 8]);
    return (random() % 4 == 0 ? "-" : "") + std::to_string(drawn);
  };
  std::string text;
  for (int row = 0; row < 400; ++row) {
    text += std::vector<const char*>{"1", "0", "+1", "0.0", "\"1\""}[random() % 5];
    for (int cell = 0; cell < 39; ++cell) {
      const std::string word = std::to_string(random()).substr(0, random() % 20);
      text += '\t' + (cell < 13 ? number() : random() % 9 == 0 ? "\"12\"" : word);
    }
    text += row % 3 == 0 ? "\r\n" : "\n";
  }
  for (const Labels labels : {Labels::kBinary, Labels::kReal, Labels::kOptional}) {
    const Dataset quick = parse_text(text, "t", {.format = Format::kCriteo, .labels = labels});
    EXPECT_EQ(quick.entries(), 400u * 39u);
    expect_alike(
        quick, parse_text(text, "t", {.format = Format::kCriteo, .labels = labels, .names = true}));
  }
  EXPECT_THAT(error_of(text + "-1" + text.substr(text.find('\t')), {.format = Format::kCriteo}),
              AllOf(HasSubstr("train.csv:401:"), HasSubstr("label 0 on line")));
}

// Each whole number up to where buckets are wide, and those around where each begins.
TEST(Columns, FindBucketsOfWholeNumbersInATable) {
  const WholeBuckets& table = WholeBuckets::table();
  const auto check = [&table](std::uint32_t x) {
    const auto as_read = static_cast<double>(static_cast<float>(x));
    ASSERT_EQ(table.of(x), bucket_of(as_read)) << x;
  };
  for (std::uint32_t x = 0; x < 20'000; ++x) check(x);
  for (int bucket = 90; bucket < 352; ++bucket) {
    const auto begin = static_cast<std::uint32_t>(std::exp(std::sqrt(bucket - 2)));
    for (std::uint32_t x = begin - 20; x < begin + 20; ++x)
      check(std::min(x, WholeBuckets::kEnd - 1));
  }
  check(WholeBuckets::kEnd - 1);
}

// Models keep ids: these are as they have been since the first version.
TEST(Columns, KeepTheirIdsForGood) {
  std::string row = "1\t-2\t3\t123456\t";
  for (int i = 5; i <= 13; ++i) row += '\t';
  for (int i = 1; i <= 26; ++i) row += '\t' + std::string("68fd1e64ab0f").substr(0, i % 13);
  const Dataset d = parse_text(row + '\n', "t");
  const std::vector<std::uint32_t> first(d.ids.begin(), d.ids.begin() + 4);
  EXPECT_THAT(first, ElementsAre(3526549105u, 2569629997u, 3928491883u, 810545451u));
  std::uint64_t all = 0;
  for (const std::uint32_t id : d.ids) all = all * 31 + id;
  EXPECT_EQ(all, 1523174597044036971u);
}

TEST(Columns, HashShortTextsAlike) {
  for (std::size_t n = 0; n <= 8; ++n) {
    const std::string text = "q7\xff,z\x01W9";
    EXPECT_EQ(hash_short(99, load8(text.data()), n), hash_text(99, {text.data(), n})) << n;
  }
}

// Text and ids of any size become ids; where two hashes meet, values add up.
TEST(Columns, HashTokensToo) {
  const Dataset d = parse_text("1 user=7:1 99999999999999999999:2\n0 user=7:3\n", "t",
                               {.bits = 32, .names = true});
  EXPECT_THAT(d.names, UnorderedElementsAre(Pair(d.ids[2], "user=7"),
                                            Pair(testing::_, "99999999999999999999")));
  EXPECT_THAT(
      parse_text("1 a:1 b:2 c:4\n", "t", {.format = Format::kLibsvm, .bits = 1}).values,
      testing::AnyOf(ElementsAre(7), ElementsAre(1, 6), ElementsAre(2, 5), ElementsAre(4, 3),
                     ElementsAre(6, 1), ElementsAre(5, 2), ElementsAre(3, 4)));
  EXPECT_THAT(error_of("1 :1\n", {.format = Format::kLibsvm, .bits = 8}), HasSubstr("name"));
}

struct Refused {
  const char* text;
  std::vector<const char*> facts;
};

TEST(Columns, RefuseWhatDoesNotFit) {
  for (const auto& [text, facts] : std::vector<Refused>{
           {"a,b\n1,2\n", {"train.csv:1:", "label", "a, b"}},
           {"1,2,3\n", {"train.csv:1:", "header"}},
           {"y,a\n1,x\n0\n", {"train.csv:3:", "1 cells", "2 columns"}},
           {"y,a\n1,x\n0,x,y,z\n", {"train.csv:3:", "4 cells", "2 columns"}},
           {"y,a\n2,x\n", {"train.csv:2:", "\"2\"", "two classes"}},
           {"y,a\n1,x\n-1,x\n0,x\n", {"train.csv:4:", "-1", "line 3"}},
           {"y,a:number\n1,x\n", {"train.csv:2:", "\"x\" at column 3", "number", "a"}},
           {"y,a:bucket,b\n1,-,x\n", {"train.csv:2:", "\"-\" at column 3", "number"}},
           {"y,a:log\n1,nan\n", {"train.csv:2:", "not finite"}},
           {"y,a:numbre\n1,2\n", {"train.csv:1:", "numbre", "bucket"}},
           {"y,a,a\n1,2,3\n", {"train.csv:1:", "\"a\" twice"}},
           {"y,w:weight\n1,-2\n", {"train.csv:2:", "below 0"}},
           {"y,h:hour\n0,\n1,x\n", {"train.csv:3:", "YYMMDDHH"}},
           {"y,a\n1,\"x\n0,y\"\n", {"train.csv:2:", "quotes"}},
           {"y,a\n1,\"x\"z\n", {"train.csv:2:", "cell"}},
           {"y,a\n", {"no rows"}},
           {",\n", {"train.csv:1:"}},
           {"motleyWM\x03", {"is a model"}}}) {
    const std::string message = error_of(text);
    for (const char* fact : facts) EXPECT_THAT(message, HasSubstr(fact)) << text;
  }
  EXPECT_THAT(error_of(std::string("y,a\n1,\0\n", 8)), AllOf(HasSubstr(":2:"), HasSubstr("NUL")));
  const auto with = [](const char* columns, std::optional<Format> format = std::nullopt) {
    return ReadOptions{.format = format, .columns = parse_columns(columns)};
  };
  EXPECT_THAT(error_of("y,a\n1,2\n", with("b:log")), HasSubstr("which has b"));
  EXPECT_THAT(error_of("y,a\n1,2\n", with("y:label,b:log")),
              HasSubstr("\"b\" of the schema; it has y, a"));
  EXPECT_THAT(error_of("1,2,3\n", with("y:label,b:log")),
              HasSubstr("3 cells, but the schema names 2"));
  EXPECT_THAT(error_of("y,a\n1,2\n", with("y:skip")), HasSubstr("no column is the label"));
  EXPECT_THAT(error_of("1 1:1 2:1\n", with("b:log")), HasSubstr("libffm (INDEX:VALUE)"));
  EXPECT_THAT(error_of("1 1:1 2:1\n", with("b:log", Format::kLibsvm)),
              HasSubstr("libsvm has none"));
  EXPECT_THROW(parse_columns("a:b"), Error);
  EXPECT_THROW(parse_columns("a:skip,a:skip"), Error);
  EXPECT_THROW(from_recipe("csv 99 0 0 "), Error);
}

TEST(Columns, SchemasSurviveTheirText) {
  Schema schema{.format = Format::kCsv, .bits = 20, .delimiter = ';', .columns = {}};
  schema.columns = {{"a,b\\c:d", ColumnType::kLog}, {"y", ColumnType::kLabel}};
  EXPECT_EQ(from_recipe(to_recipe(schema)), schema);
  EXPECT_THAT(to_recipe({}), IsEmpty());
}

}  // namespace
}  // namespace motley::wide
