// Kernels that spill registers, or keep arrays in local memory, are errors of the build; how many
// registers they may use follows from their __launch_bounds__. Shown with planted kernels, compiled
// as ours are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "test/support/temporary_folder.h"

namespace motley {
namespace {

struct Compiled {
  int status = 0;
  std::string said;
};

Compiled compile(const std::string& kernel) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "kernel.cu") << kernel;
  const std::string command = MOTLEY_COMPILE " " + folder / "kernel.cu" + " -o " +
                              folder / "object" + " >" + folder / "said" + " 2>&1";
  Compiled compiled{.status = std::system(command.c_str())};
  std::stringstream said;
  said << std::ifstream(folder / "said").rdbuf();
  compiled.said = said.str();
  return compiled;
}

// Forty numbers in each thread, between two barriers.
std::string kernel_bounded_by(const std::string& bounds) {
  return "__global__ void __launch_bounds__(" + bounds +
         ") forty(double* a) {\n"
         "  double x[40];\n"
         "  for (int i = 0; i < 40; ++i) x[i] = a[i * 7 + threadIdx.x];\n"
         "  __syncthreads();\n"
         "  for (int i = 0; i < 40; ++i) a[i * 7 + threadIdx.x] = x[39 - i] * x[i];\n"
         "}\n";
}

TEST(KernelResources, WhatFitsCompiles) {
  const Compiled compiled = compile(kernel_bounded_by("256"));
  EXPECT_EQ(compiled.status, 0) << compiled.said;
}

TEST(KernelResources, SpillsAreErrors) {
  const Compiled compiled = compile(kernel_bounded_by("256, 6"));
  EXPECT_NE(compiled.status, 0);
  EXPECT_THAT(compiled.said, testing::HasSubstr("spilled"));
}

TEST(KernelResources, LocalArraysAreErrors) {
  const Compiled compiled = compile(
      "__global__ void picks(int* a, int n) {\n"
      "  int x[64];\n"
      "  for (int i = 0; i < 64; ++i) x[i] = a[i];\n"
      "  for (int i = 0; i < n; ++i) a[i] = x[a[i] * 7 & 63];\n"
      "}\n");
  EXPECT_NE(compiled.status, 0);
  EXPECT_THAT(compiled.said, testing::HasSubstr("Local memory used"));
}

}  // namespace
}  // namespace motley
