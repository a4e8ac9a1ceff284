// Shows that misuse and bad input of motley-wide end in the promised exit code with the fact on
// standard error, before anything is read or overwritten that should not be.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "test/wide/motley_wide.h"

namespace motley::wide {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class Misuse : public MotleyWide {};

TEST_F(Misuse, ExitsWith2AndSaysWhyWhenMisused) {
  write_small();
  const struct {
    const char* arguments;
    const char* fact;
  } cases[] = {{"", "a command is missing"},
               {"trian small.txt", "trian"},
               {"train", "TRAIN"},
               {"train a b c", "VALIDATION"},
               {"train small.txt --epoch 3", "--epoch"},
               {"train small.txt --epochs three", "three"},
               {"train small.txt --epochs", "needs a value"},
               {"train small.txt --format tsv", "criteo"},
               {"train small.txt --schema a:b", "bucket"},
               {"train small.txt --bits 33", "32"},
               {"convert small.txt", "--output"},
               {"train small.txt --sync gossip", "wait_avoiding"},
               {"train small.txt --sync none", "all_reduce"},
               {"train small.txt -m ffn", "ffm or fwfm"},
               {"train small.txt --loss cubic", "squared_hinge"},
               {"train small.txt --optimizer lbfgs", "adagrad"},
               {"train small.txt --threads 0", "threads"},
               {"train small.txt --device gpu", "cuda"},
               {"train small.txt -k 1000", "256"},
               {"train small.txt --holdout 0.999", "200 rows"},
               {"train small.txt --online --report page", "--report"},
               {"train small.txt --prior 1 --optimizer ftrl", "--prior is 1"},
               {"train small.txt --folds 201", "--folds is 201"},
               {"predict m", "MODEL and DATA"},
               {"predict m d --lr 1", "--lr"},
               {"eval m", "MODEL and DATA"}};
  for (const auto& c : cases) {
    const Outcome o = run(c.arguments);
    EXPECT_EQ(o.code, 2) << c.arguments;
    EXPECT_THAT(o.err, AllOf(HasSubstr("motley-wide: "), HasSubstr(c.fact))) << c.arguments;
    EXPECT_THAT(o.out, IsEmpty()) << c.arguments;
  }
}

// Called as the user typed it, and never taken for a default.
TEST_F(Misuse, RefusesEveryNumberOutOfRangeByTheNameOfItsFlag) {
  write_small();
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  const struct {
    const char* command;
    std::vector<const char*> flags;
  } cases[] = {{"train small.txt",
                {"--epochs 0",
                 "--epochs -1",
                 "--lr 0",
                 "--lr -1",
                 "--lr nan",
                 "--lr_factors -1",
                 "--l1 -1",
                 "--l2 -1",
                 "--l2 inf",
                 "--l1_factors -1",
                 "--l2_factors -1",
                 "--prior -1",
                 "--prior inf",
                 "--average -1",
                 "--average 2",
                 "--init_scale -1",
                 "--init_scale nan",
                 "--batch 0",
                 "--k 0",
                 "--k 257",
                 "--patience 0",
                 "--threads 0",
                 "--bits 0",
                 "--holdout 1",
                 "--holdout -0.5",
                 "--folds 0",
                 "--folds 1",
                 "--online_rows 0",
                 "--positive_weight 0",
                 "--negative_rate 0",
                 "--negative_rate 2",
                 "--sync_rows 0",
                 "--group_size 0",
                 "--shard --shard_copies 0",
                 "--shard --shard_staleness 0",
                 "--disk --disk_rows 0"}},
               {"inspect m", {"--top -1"}},
               {"predict m small.txt", {"--threads 0"}},
               {"serve m",
                {"--port 65536", "--port -1", "--threads 0", "--deadline_ms 0", "--batch_rows 0",
                 "--waiting_rows 0", "--connections 0"}}};
  for (const auto& [command, flags] : cases) {
    for (const std::string flag : flags) {
      const Outcome o = run(fmt::format("{} {}", command, flag));
      const std::size_t name = flag.rfind("--");
      const std::size_t value = flag.rfind(' ');
      EXPECT_EQ(o.code, 2) << flag;
      EXPECT_THAT(o.err, HasSubstr("motley-wide: " + flag.substr(name, value - name) + " is " +
                                   flag.substr(value + 1) + ", but must be "));
    }
  }
}

TEST_F(Misuse, OverwritesNothingThatItReads) {
  write_small();
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  write("valid.txt", read("small.txt"));
  write("weights", std::string(200, '1'));
  write("next.tmp", read("small.txt"));
  std::filesystem::create_symlink("small.txt", folder_ / "link");
  for (const char* arguments :
       {"train small.txt -o small.txt", "train small.txt valid.txt -o valid.txt",
        "train small.txt --validate valid.txt -o ./valid.txt", "train valid.txt,small.txt -o link",
        "train link -o small.txt", "train small.txt --report small.txt",
        "train small.txt -o out --report out", "train small.txt -i m -o out --report m",
        "train small.txt --weights weights -o weights", "train next.tmp -o next",
        "train small.txt --online -o small.txt", "train small.txt --disk -o small.txt",
        "predict m small.txt -o m", "predict m small.txt -o link",
        "eval m small.txt --report small.txt", "convert small.txt -o small.txt",
        "convert m -o m"}) {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.code, 2) << arguments;
    EXPECT_THAT(o.err, testing::AnyOf(HasSubstr("overwrite"), HasSubstr("one file"))) << arguments;
    EXPECT_EQ(read("small.txt"), read("next.tmp")) << arguments;
    EXPECT_EQ(read("valid.txt"), read("next.tmp")) << arguments;
    EXPECT_EQ(run("eval m small.txt").code, 0) << arguments;
  }
  EXPECT_EQ(run("train small.txt -q -e 1 -i m -o m").code, 0) << "a model may go on as itself";
}

TEST_F(Misuse, SaysThatFilesHaveNoRows) {
  write("none.txt", "# nothing\n");
  const Outcome o = run("train none.txt --shard");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("train: the data set has no rows"));
}

// Data that is missing would be the error if it were read first.
TEST_F(Misuse, FindsOutBeforeReadingThatItCannotWrite) {
  write_small();
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  for (const char* place : {"/nonexistent/x", ".", "small.txt/x"}) {
    for (const char* arguments :
         {"train missing -o", "train missing -o new --report", "train missing --online -o",
          "train missing --disk -o", "predict m missing -o", "eval m missing --report",
          "convert missing -o"}) {
      const Outcome o = run(fmt::format("{} {}", arguments, place));
      EXPECT_EQ(o.code, 1) << arguments;
      EXPECT_THAT(o.err, AllOf(HasSubstr("--"), testing::Not(HasSubstr("missing")))) << arguments;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
}

TEST_F(Misuse, HoldsDataToTheIdsOfTheModel) {
  write("t.csv", "click,site,price\n1,x,3\n0,y,4\n");
  ASSERT_EQ(run("train t.csv -q -o m").code, 0);
  for (const char* command : {"predict m t.csv", "eval m t.csv", "train t.csv -o n -i m"}) {
    const std::string text = command;
    EXPECT_THAT(run(text + " --bits 8").err, HasSubstr("--bits is 8, but the model has 32"));
    EXPECT_THAT(run(text + " --schema price:log").err, HasSubstr("price:log"));
    EXPECT_EQ(run(text + " --bits 32 --schema price:category -q").code, 0);
  }
}

// Rows of another format have no feature of the model: its predictions would be one number.
TEST_F(Misuse, RefusesRowsThatAreNotOfTheModel) {
  write("t.csv", "click,site,price\n1,x,3\n0,y,4\n");
  write("t.ffm", "1 0:1:1 1:2:1\n0 0:3:1 1:2:1\n");
  write("far.ffm", "1 0:100:1\n0 1:200:1\n");
  ASSERT_EQ(run("train t.csv -q -o of_csv").code, 0);
  ASSERT_EQ(run("train t.csv -q --bits 8 -o of_8").code, 0);
  ASSERT_EQ(run("train t.ffm -q -o of_ffm").code, 0);
  ASSERT_EQ(run("train t.ffm -q -m ffm -o of_fields").code, 0);
  ASSERT_EQ(run("convert t.ffm -q -o t.cache").code, 0);
  ASSERT_EQ(run("convert t.csv -q -o csv.cache").code, 0);
  const struct {
    const char* files;
    std::vector<const char*> facts;
  } cases[] = {
      {"of_ffm t.csv", {"t.csv: ", "libsvm or libffm with ids", "csv with ids hashed to 32"}},
      {"of_fields t.csv", {"t.csv: ", "on libffm with ids", "csv with ids"}},
      {"of_csv t.ffm", {"t.ffm:1: ", "libffm", "csv", "click, site, price"}},
      {"of_csv t.cache", {"t.cache: ", "csv with ids", "these rows are libffm with ids"}},
      {"of_8 csv.cache", {"csv.cache: ", "8 bits", "32 bits"}},
      {"of_ffm far.ffm", {"far.ffm: ", "none of the features of all 2 entries"}}};
  for (const char* command : {"predict ", "eval "}) {
    for (const auto& c : cases) {
      const Outcome o = run(command + std::string(c.files) + " -q");
      EXPECT_EQ(o.code, 1) << c.files;
      EXPECT_THAT(o.out, IsEmpty()) << c.files;
      for (const char* fact : c.facts) EXPECT_THAT(o.err, HasSubstr(fact)) << c.files;
    }
    EXPECT_THAT(run(command + std::string("of_csv t.ffm --format libffm")).err,
                HasSubstr("--format is libffm, but the model was trained on csv"));
  }
}

// A line of 39 cells of Criteo's 40 has no label, or lacks another column: what the model knows of
// its features tells.
TEST_F(Misuse, RefusesLinesThatLackAnotherColumnThanTheLabel) {
  std::string all, unlabelled, cut;
  const auto row = [](int r, int strange) {
    std::string cells;
    for (int c = 1; c <= 13; ++c) cells += fmt::format("\t{}", 1000 * c + r % 2);
    for (int c = 1; c <= 26; ++c) cells += fmt::format("\tc{}v{}", c, c <= strange ? 9 : r % 3);
    return cells + "\n";
  };
  for (int r = 0; r < 60; ++r) {
    const std::string cells = row(r, 0);
    all += std::to_string(r % 2) + cells;
    unlabelled += cells.substr(1);
    cut += std::to_string(r % 2) + cells.substr(0, cells.rfind('\t')) + "\n";
  }
  write("all.tsv", all);
  write("unlabelled.tsv", unlabelled);
  write("cut.tsv", cut);
  write("strange_19.tsv", row(1, 19).substr(1));  // of 39
  write("strange_20.tsv", row(1, 20).substr(1));
  write("labelled.tsv", "0" + row(1, 20));
  ASSERT_EQ(run("train all.tsv -q -m lr -e 1 -o m").code, 0);
  EXPECT_EQ(run("predict m unlabelled.tsv -q").out, run("predict m all.tsv -q").out);
  for (const char* file : {"strange_19.tsv", "labelled.tsv"}) {
    EXPECT_EQ(run("predict m " + std::string(file)).code, 0) << file;
  }
  for (const char* file : {"cut.tsv", "strange_20.tsv"}) {
    const Outcome o = run("predict m " + std::string(file));
    EXPECT_EQ(o.code, 1) << file;
    EXPECT_THAT(o.out, IsEmpty()) << file;
    EXPECT_THAT(o.err, AllOf(HasSubstr(file), HasSubstr("39 cells of 40"), HasSubstr("column")));
  }
  EXPECT_THAT(run("predict m strange_20.tsv").err, HasSubstr("51.3 % of their features"));
}

TEST_F(Misuse, ExitsWith1AndNamesThePlaceOnBadInput) {
  write_small();
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  write("empty.txt", "");
  write("nan.txt", "1 1:1\n0 2:nan\n");
  write("index.txt", "1 1:1\n\n0 1099511627776:1\n");
  write("binary.txt", std::string("\x7f"
                                  "ELF\0\0\1",
                                  7));
  write("huge.txt", "1 1:3e38\n0 1:3e38\n");
  write("cut.model", read("m").substr(0, 80));
  const struct {
    const char* arguments;
    std::vector<const char*> facts;
  } cases[] = {{"train missing.txt", {"missing.txt"}},
               {"train empty.txt", {"empty.txt", "no rows"}},
               {"train nan.txt", {"nan.txt:2:", "2:nan"}},
               {"train small.txt nan.txt", {"nan.txt:2:"}},
               {"train index.txt", {"index.txt:3:", "1099511627776", "4294967295"}},
               {"train binary.txt", {"binary.txt:1:"}},
               {"train huge.txt --nonormalise", {"diverged"}},
               {"train small.txt -o /nonexistent/m", {"/nonexistent/m"}},
               {"predict small.txt small.txt", {"small.txt", "no Motley model"}},
               {"predict cut.model small.txt", {"cut.model", "truncated"}},
               {"eval m nan.txt", {"nan.txt:2:"}},
               {"predict m small.txt -o /nonexistent/p", {"/nonexistent/p"}},
               {"predict m small.txt -o /dev/full", {"/dev/full"}},
               {"train small.txt -q -o /dev/full", {"/dev/full"}},  // and it stays a device
               {"eval m small.txt 2>err.txt >/dev/full #", {"standard output"}}};
  for (const auto& c : cases) {
    const Outcome o = run(c.arguments);
    EXPECT_EQ(o.code, 1) << c.arguments << "\n" << o.err;
    for (const char* fact : c.facts) EXPECT_THAT(o.err, HasSubstr(fact)) << c.arguments;
    EXPECT_THAT(o.out, testing::Not(HasSubstr("nan"))) << c.arguments;
  }
}

}  // namespace
}  // namespace motley::wide
