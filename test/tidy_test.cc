// The tree keeps its own rules (layers, lengths, forbidden words, no dead file), and each rule is
// shown to catch a snippet that breaks it. The last two tests do the same for headers that need
// other headers.
#include "test/support/tidy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace motley::tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<File>& tree() {
  static const std::vector<File> files = read_tree(MOTLEY_SOURCE_DIR);
  return files;
}

std::string lines_of(const Findings& findings) {
  std::string text;
  for (const std::string& finding : findings) text += "\n" + finding;
  return text;
}

// Applies a rule to every code file; a failure prints each finding as path:line.
void expect_kept(Findings (*rule)(const File&)) {
  Findings all;
  for (const File& file : tree()) {
    if (!is_code(file)) continue;
    const Findings found = rule(file);
    all.insert(all.end(), found.begin(), found.end());
  }
  EXPECT_TRUE(all.empty()) << lines_of(all);
}

std::string including(const std::string& path) { return "#include \"" + path + "\"\n"; }

std::string repeated(int times, const std::string& text) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Tree, IsFoundWithAllItsModules) {
  for (const char* path : {"comm/view.h", "CMakeLists.txt", ".ci/run", "test/tidy_test.cc"}) {
    EXPECT_TRUE(std::ranges::any_of(tree(), [&](const File& file) { return file.path == path; }))
        << path;
  }
}

TEST(Tree, KeepsItsLayers) { expect_kept(check_layers); }
TEST(Tree, KeepsItsLengths) { expect_kept(check_lengths); }
TEST(Tree, KeepsItsWords) { expect_kept(check_words); }

TEST(Tree, KeepsItsPlaces) {
  Findings all;
  for (const File& file : tree()) {
    const Findings found = check_place(file);
    all.insert(all.end(), found.begin(), found.end());
  }
  EXPECT_TRUE(all.empty()) << lines_of(all);
}

TEST(Tree, HasNoDeadFile) {
  const Findings dead = check_used(tree());
  EXPECT_TRUE(dead.empty()) << lines_of(dead);
}

struct Forbidden {
  const char* from;
  const char* to;
};

TEST(Rules, CatchAnIncludeAgainstTheLayers) {
  for (const auto& [from, to] : std::vector<Forbidden>{
           {"comm/view.h", "runtime/trainer.h"},                      // upward
           {"moe/layer.cc", "wide/model.h"},                          // sideways
           {"wide/reader.cc", "moe/gate.h"},                          // sideways
           {"runtime/trainer.cc", "comm/executor/engine.h"},          // private to another module
           {"comm/communicator.h", "comm/executor/engine.h"},         // private in public
           {"comm/algorithm/ring.cc", "comm/transport/transport.h"},  // a pure part
           {"comm/transport/shm.cc", "comm/executor/engine.h"},       // upward inside comm
           {"comm/view.cc", "test/support/tidy.h"},
           {"comm/view.cc", "examples/demo/report.h"},
           {"comm/view.cc", "view.h"},  // not from the root
       }) {
    EXPECT_THAT(check_layers({from, including(to)}),
                ElementsAre(HasSubstr(std::string(from) + ":1: ")))
        << from << " -> " << to;
  }
}

TEST(Rules, AllowAnIncludeAlongTheLayers) {
  for (const auto& [from, to] : std::vector<Forbidden>{
           {"wide/reader.cc", "runtime/trainer.h"},
           {"moe/layer.cc", "comm/view.h"},
           {"comm/communicator.cc", "comm/executor/engine.h"},
           {"comm/executor/engine.cc", "comm/transport/transport.h"},
           {"comm/algorithm/ring.cc", "comm/algorithm/schedule.h"},
           {"test/comm/engine_test.cc", "comm/executor/engine.h"},
           {"examples/01_all_reduce.cc", "comm/communicator.h"},
       }) {
    EXPECT_THAT(check_layers({from, including(to)}), IsEmpty()) << from << " -> " << to;
  }
  EXPECT_THAT(check_layers({"comm/view.h", "// " + including("moe/layer.h")}), IsEmpty());
}

TEST(Rules, CatchWhatIsTooLong) {
  const std::string wide_line = std::string(101, 'x') + "\n";
  EXPECT_THAT(check_lengths({"comm/a.cc", "\n" + wide_line}),
              ElementsAre(HasSubstr("comm/a.cc:2: 101 columns")));
  EXPECT_THAT(check_lengths({"comm/a.cc", "// " + repeated(97, "…") + "\n"}), IsEmpty());
  EXPECT_THAT(check_lengths({"comm/x/a.h", repeated(401, "int x;\n")}),
              ElementsAre(HasSubstr("401 lines")));
  EXPECT_THAT(check_lengths({"comm/x/a.h", repeated(400, "int x;\n")}), IsEmpty());
  EXPECT_THAT(check_lengths({"comm/a.h", repeated(201, "int x;\n")}),
              ElementsAre(HasSubstr("201 lines")));
}

struct Head {
  const char* before;
  const char* head;  // of one line
  const char* after;
};

TEST(Rules, CatchALongFunctionWhereverItStands) {
  const std::string fits = " {\n" + repeated(58, "  f();\n") + "}\n";
  const std::string too_long = " {\n" + repeated(59, "  f();\n") + "}\n";
  for (const auto& [before, head, after] : std::vector<Head>{
           {"", "void f()", ""},
           {"", "template <class T> void f(T x) requires(sizeof(T) > 1)", ""},
           {"namespace a::b {\nclass A : B<int> {\n public:\n", "int f() const noexcept",
            "};\n}\n"},
           {"template <class T>\nstruct A {\n  int x = 0;\n", "A() = default; int f()", "};\n"},
           {"", "A::A(int x) : x_{x}, y_(x)", ""},
           {"", "A::A(int x) : y_(x), x_{x}", ""},
           {"#include <vector>\n", "TEST(A, B)", ""},
           {"const char* kText = \"{(\"; char c = '{';\n", "struct S f()", ""},
           {"", "const auto f = [](int x)", ";\n"},
       }) {
    EXPECT_THAT(check_lengths({"comm/a.cc", std::string(before) + head + fits + after}), IsEmpty())
        << head;
    EXPECT_THAT(check_lengths({"comm/a.cc", std::string(before) + head + too_long + after}),
                ElementsAre(HasSubstr("a function of 61 lines")))
        << head;
  }
  const std::string table = "const int kTable[] = {\n" + repeated(90, "1,\n") + "};\n";
  EXPECT_THAT(check_lengths({"comm/a.cc", table}), IsEmpty());
}

TEST(Rules, CatchForbiddenWordsOutsideOfCommentsAndLiterals) {
  const std::string jump =
      "go"
      "to done;";
  const std::string state =
      "thread"
      "_local int x;";
  const std::string read =
      "std::get"
      "env(\"HOME\");";
  for (const std::string& line : {jump, state, read, std::string("#define MAX(a, b) a"),
                                  std::string("#ifdef __linux__"), std::string("#  if FOO")}) {
    EXPECT_THAT(check_words({"comm/a.cc", "int i;\n" + line + "\n"}),
                ElementsAre(HasSubstr("comm/a.cc:2: ")));
    EXPECT_THAT(check_words({"comm/a.cc", "// " + line + "\n/*\n" + line + "*/\n"}), IsEmpty());
    EXPECT_THAT(check_words({"comm/a.cc", "f(R\"(" + line + ")\");\n"}), IsEmpty());
  }
  EXPECT_THAT(check_words({"comm/options.cc", read}), IsEmpty());
  EXPECT_THAT(check_words({"test/support/simt/block.cc", state}), IsEmpty());
  EXPECT_THAT(check_words({"comm/device.h", "#if MOTLEY\n#endif\n"}), IsEmpty());
  EXPECT_THAT(check_words({"comm/a.cc", "#define LIMIT 3\nint n = 1'000'000; int m = 2'0;\n"}),
              IsEmpty());
}

TEST(Rules, CatchAFileInTheWrongPlace) {
  for (const char* path :
       {"notes.txt", "docs/design.md", "comm/src/view.cc", "comm/include/view.h", "wide/fm.cu"}) {
    EXPECT_THAT(check_place({path, ""}), Not(IsEmpty())) << path;
  }
  for (const char* path :
       {"README.md", ".ci/run", ".gitignore", "comm/kernel/reduce.cu", "docker/packages.txt"}) {
    EXPECT_THAT(check_place({path, ""}), IsEmpty()) << path;
  }
}

TEST(Rules, CatchADeadFile) {
  std::vector<File> files = {
      {"comm/CMakeLists.txt", "motley_module(comm SOURCES a.cc kernel/b.cc)"},
      {"test/comm/CMakeLists.txt",
       "motley_test(a_test SOURCES a_test.cc "
       "${PROJECT_SOURCE_DIR}/test/support/s.cc)\nmotley_test(b_test)"},
      {"comm/a.cc", including("comm/a.h") + including("comm/kernel/b.h")},
      {"comm/a.h", ""},
      {"comm/kernel/b.cc", ""},
      {"comm/kernel/b.h", ""},
      {"test/comm/a_test.cc", ""},
      {"test/comm/b_test.cc", ""},
      {"test/support/s.cc", ""},
  };
  EXPECT_THAT(check_used(files), IsEmpty());
  files.push_back({"comm/kernel/c.cc", including("comm/kernel/c.h")});
  files.push_back({"comm/kernel/c.h", ""});
  EXPECT_THAT(check_used(files),
              ElementsAre(HasSubstr("comm/kernel/c.cc:1"), HasSubstr("comm/kernel/c.h:1")));
}

// The build compiles each header alone (see test/CMakeLists.txt); this is how a compiler sees one.
bool compiles_alone(const std::string& text) {
  const std::string path = ::testing::TempDir() + "motley_tidy_alone.h";
  std::ofstream(path) << text;
  const std::string command =
      std::string(MOTLEY_CXX) + " -std=c++20 -fsyntax-only -x c++ " + path + " 2>/dev/null";
  return std::system(command.c_str()) == 0;
}

TEST(Rules, CatchAHeaderThatNeedsAnother) {
  EXPECT_FALSE(compiles_alone("inline std::vector<int> f() { return {}; }\n"));
  EXPECT_TRUE(compiles_alone("#include <vector>\ninline std::vector<int> f() { return {}; }\n"));
}

}  // namespace
}  // namespace motley::tidy
