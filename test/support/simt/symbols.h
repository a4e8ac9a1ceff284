// test/support/simt/symbols.h: the names of this program's functions and of its thread-local
// variables, which is what shared variables of kernels are; from its own symbol table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace motley::simt {

class Symbols {
 public:
  struct Range {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::string name;  // demangled
    bool holds(std::uintptr_t at) const noexcept { return at >= begin && at < end; }
  };

  static const Symbols& get();

  // "motley::sum_kernel(float*) + 0x1f"; the address if nothing is known of it.
  std::string place(const void* code) const;
  // The function without its parameters.
  std::string function(const void* code) const;
  // The thread-local variable of the calling thread that holds `address`, or null.
  const Range* local_variable(const void* address) const;
  // Whether `address` is among the calling thread's thread-local variables.
  static bool is_local(const void* address) noexcept;
  // Whether it is among what the program brings: constants, variables, code.
  bool is_static(const void* address) const noexcept;

 private:
  Symbols();
  void read(const std::vector<std::byte>& file);
  static const Range* find(const std::vector<Range>& ranges, std::uintptr_t at);

  std::vector<Range> functions_;  // by address
  std::vector<Range> locals_;     // by offset in the thread's block
  std::vector<Range> segments_;
};

}  // namespace motley::simt
