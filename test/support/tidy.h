// test/support/tidy.h: the rules of this tree that a compiler does not check, as pure functions
// from a file, or all files, to findings of the form "path:line: what is wrong". No finding is a
// pass.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace motley::tidy {

struct File {
  std::string path;  // from the root of the tree, with '/'
  std::string text;
};

using Findings = std::vector<std::string>;

// Every file of the tree but what git or a build put there; in order of their paths.
std::vector<File> read_tree(const std::filesystem::path& root);

// C++ or CUDA.
bool is_code(const File& file);
// Directly in a module's folder, and so installed.
bool is_public_header(const std::string& path);

// `text` with comments and the insides of literals replaced by blanks; every line keeps its length.
std::string code_only(const std::string& text);

// Public and private folders; wide, moe -> runtime -> comm; what is pure inside comm stays pure.
Findings check_layers(const File& file);
// 100 columns; 400 lines a file, 200 a public header; 60 lines a function.
Findings check_lengths(const File& file);
// No jumps, thread-local state, function-like macros; conditional compilation and the environment
// only where they belong.
Findings check_words(const File& file);
// The top level holds what README.md lists; CUDA stays in kernel/; no folder repeats what modules
// do.
Findings check_place(const File& file);
// Every source is named by a CMakeLists.txt; every private header is included by another file.
Findings check_used(const std::vector<File>& tree);

}  // namespace motley::tidy
