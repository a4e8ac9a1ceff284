// test/wide/motley_wide.h: the program motley-wide, run in a folder that goes away with the test.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace motley::wide {

struct Outcome {
  int code = -1;  // exit code; -1 if a signal ended it
  std::string out;
  std::string err;
};

class MotleyWide : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / fmt::format("motley_wide_{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Runs the program in the test's folder, by `launcher` if there is one.
  Outcome run(const std::string& arguments, const std::string& launcher = "") const {
    const std::string command = fmt::format("cd '{}' && {} '{}' {} >out.txt 2>err.txt",
                                            folder_.string(), launcher, MOTLEY_WIDE, arguments);
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out.txt"), read("err.txt")};
  }
  void write_small() const {
    std::string text;
    for (int i = 0; i < 200; ++i) text += i % 2 == 0 ? "1 1:1 3:1\n" : "0 2:1 3:1\n";
    write("small.txt", text);
  }

  std::filesystem::path folder_;
};

}  // namespace motley::wide
