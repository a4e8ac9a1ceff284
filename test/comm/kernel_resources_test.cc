// What the assembler says of each kernel, for every kind of device that is built for: no register
// spills to memory, no stack is needed, and at most 40 registers a thread, so that six blocks of
// 256 threads run at once on a multiprocessor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "test/support/temporary_folder.h"

namespace motley {
namespace {

struct Kernel {
  std::string name;
  std::string device;
  int stack_bytes = -1;
  int spilled_bytes = -1;  // stored and loaded
  int registers = -1;
};

// The kernels of which `ptxas -v` told.
std::vector<Kernel> kernels_in(const std::string& text) {
  const std::regex entry("Compiling entry function '(\\w+)' for '(\\w+)'");
  const std::regex frame("(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes spill");
  const std::regex used("Used (\\d+) registers");
  std::vector<Kernel> kernels;
  std::istringstream lines(text);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, entry)) {
      kernels.push_back({.name = match[1], .device = match[2]});
    } else if (!kernels.empty() && std::regex_search(line, match, frame)) {
      kernels.back().stack_bytes = std::stoi(match[1]);
      kernels.back().spilled_bytes = std::stoi(match[2]) + std::stoi(match[3]);
    } else if (!kernels.empty() && std::regex_search(line, match, used)) {
      kernels.back().registers = std::stoi(match[1]);
    }
  }
  return kernels;
}

class KernelResources : public testing::TestWithParam<std::string> {};

TEST_P(KernelResources, FitWithoutSpilling) {
  const test::TemporaryFolder folder;
  const std::string command = MOTLEY_COMPILE " " + GetParam() + " -o " + folder / "object" + " >" +
                              folder / "said" + " 2>&1";
  const int status = std::system(command.c_str());
  std::stringstream said;
  said << std::ifstream(folder / "said").rdbuf();
  ASSERT_EQ(status, 0) << command << "\n" << said.str();
  const std::vector<Kernel> kernels = kernels_in(said.str());
  EXPECT_FALSE(kernels.empty()) << said.str();
  for (const Kernel& kernel : kernels) {
    SCOPED_TRACE(kernel.name + " for " + kernel.device);
    EXPECT_EQ(kernel.stack_bytes, 0);
    EXPECT_EQ(kernel.spilled_bytes, 0);
    EXPECT_THAT(kernel.registers, testing::AllOf(testing::Gt(0), testing::Le(40)));
  }
}

std::vector<std::string> files() {
  std::istringstream words(MOTLEY_KERNELS);
  return {std::istream_iterator<std::string>(words), {}};
}

INSTANTIATE_TEST_SUITE_P(Files, KernelResources, testing::ValuesIn(files()),
                         [](const testing::TestParamInfo<std::string>& file) {
                           return std::filesystem::path(file.param).stem().string();
                         });

// As the assembler of CUDA 13 writes it.
TEST(KernelResources, AreReadAsTheAssemblerWritesThem) {
  const std::vector<Kernel> kernels = kernels_in(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90'\n"
      "ptxas info    : Function properties for _Z1kPf\n"
      "    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
      "ptxas info    : Used 32 registers, used 0 barriers, 16 bytes cumulative stack size\n");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].name, "_Z1kPf");
  EXPECT_EQ(kernels[0].device, "sm_90");
  EXPECT_EQ(kernels[0].stack_bytes, 16);
  EXPECT_EQ(kernels[0].spilled_bytes, 20);
  EXPECT_EQ(kernels[0].registers, 32);
}

}  // namespace
}  // namespace motley
