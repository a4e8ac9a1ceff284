#include "test/support/tidy.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

namespace motley::tidy {
using namespace std::string_view_literals;

namespace {

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string at(const File& file, std::size_t line, std::string_view what) {
  return file.path + ":" + std::to_string(line) + ": " + std::string(what);
}

bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool has_word(std::string_view line, std::string_view word) {
  for (std::size_t i = line.find(word); i != line.npos; i = line.find(word, i + 1)) {
    const bool starts = i == 0 || !is_word_char(line[i - 1]);
    const bool ends = i + word.size() == line.size() || !is_word_char(line[i + word.size()]);
    if (starts && ends) return true;
  }
  return false;
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front())) != 0) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back())) != 0) s.remove_suffix(1);
  return s;
}

std::string_view top_of(std::string_view path) { return path.substr(0, path.find('/')); }

// "comm/executor" of "comm/executor/engine.h".
std::string_view folder_of(std::string_view path) {
  return path.substr(0, std::min(path.rfind('/'), path.size()));
}

bool is_private(std::string_view path) { return std::ranges::count(path, '/') > 1; }

// Where a module may look: itself and what lies below it. Empty for what is no module.
std::vector<std::string_view> below(std::string_view module) {
  if (module == "comm") return {"comm"};
  if (module == "runtime") return {"comm", "runtime"};
  if (module == "moe") return {"comm", "runtime", "moe"};
  if (module == "wide") return {"comm", "runtime", "wide"};
  return {};
}

struct Include {
  std::size_t line;
  std::string_view path;
};

// The includes in quotes; those inside comments and literals are none.
std::vector<Include> includes_of(const File& file) {
  const std::string code = code_only(file.text);
  const std::vector<std::string_view> lines = split_lines(file.text);
  const std::vector<std::string_view> code_lines = split_lines(code);
  std::vector<Include> found;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!trimmed(code_lines[i]).starts_with("#include")) continue;
    const std::size_t open = lines[i].find('"');
    const std::size_t close = lines[i].rfind('"');
    if (open < close) found.push_back({i + 1, lines[i].substr(open + 1, close - open - 1)});
  }
  return found;
}

// Why `from` may not include `to`; empty if it may.
std::string_view why_not(std::string_view from, std::string_view to) {
  const std::vector<std::string_view> allowed = below(top_of(from));
  const bool from_module = !allowed.empty();
  if (below(top_of(to)).empty()) {
    const bool known = top_of(to) == "test" || top_of(to) == "examples";
    if (!known) return "includes are written from the root of the tree";
    return from_module ? "modules include neither test nor examples" : ""sv;
  }
  if (!from_module) return {};
  if (std::ranges::find(allowed, top_of(to)) == allowed.end())
    return "layering: wide, moe -> runtime -> comm";
  if (!is_private(to)) return {};
  if (top_of(from) != top_of(to)) return "a subfolder is private to its module";
  if (is_public_header(std::string(from))) return "public headers include only public headers";
  // Pure parts of comm: data in, data out.
  for (const std::string_view pure : {"comm/algorithm"sv, "comm/group"sv, "comm/kernel"sv}) {
    if (folder_of(from) == pure && folder_of(to) != pure)
      return "this folder is pure: public headers and its own only";
  }
  const bool upward = folder_of(from) == "comm/transport" && folder_of(to) == "comm/executor";
  return upward ? "the executor runs on transports, not the other way"sv : ""sv;
}

}  // namespace

std::vector<File> read_tree(const std::filesystem::path& root) {
  std::vector<File> tree;
  auto it = std::filesystem::recursive_directory_iterator(root);
  for (; it != std::filesystem::recursive_directory_iterator(); ++it) {
    const std::string path = it->path().lexically_relative(root).generic_string();
    if (path == "build" || path == ".git" || path == ".cache") {
      it.disable_recursion_pending();
    } else if (it->is_regular_file()) {
      std::ifstream in(it->path(), std::ios::binary);
      tree.push_back({path, {std::istreambuf_iterator<char>(in), {}}});
    }
  }
  std::ranges::sort(tree, {}, &File::path);
  return tree;
}

bool is_code(const File& file) {
  return std::ranges::any_of(std::array{".h", ".cc", ".cu", ".cuh"},
                             [&](const char* suffix) { return file.path.ends_with(suffix); });
}

bool is_public_header(const std::string& path) {
  return path.ends_with(".h") && !is_private(path) && !below(top_of(path)).empty();
}

Findings check_layers(const File& file) {
  Findings findings;
  for (const Include& include : includes_of(file)) {
    const std::string_view why = why_not(file.path, include.path);
    if (!why.empty())
      findings.push_back(
          at(file, include.line, std::string(why) + ": " + std::string(include.path)));
  }
  return findings;
}

Findings check_words(const File& file) {
  // Each word in two halves, so that a search of the tree for it finds only misuse.
  constexpr std::array kForbidden = {
      "go"
      "to"sv,
      "thread"
      "_local"sv};
  constexpr std::array kEnvironment = {
      "get"
      "env"sv,
      "secure_get"
      "env"sv,
      "environ"sv};
  const bool may_branch = file.path == "comm/device.h" || file.path == "comm/kernel/ops.h" ||
                          file.path == "comm/c_api.h" ||  // for C and C++
                          file.path.starts_with("comm/transport/");
  // Shared memory of an emulated block, and which of its threads runs, belong to a host thread.
  const bool may_be_local = file.path.starts_with("test/support/simt");
  const std::string code = code_only(file.text);
  Findings findings;
  std::size_t number = 0;
  for (const std::string_view line : split_lines(code)) {
    ++number;
    for (const std::string_view word : kForbidden) {
      if (has_word(line, word) && !may_be_local)
        findings.push_back(at(file, number, "no " + std::string(word)));
    }
    for (const std::string_view word : kEnvironment) {
      if (file.path != "comm/options.cc" && has_word(line, word))
        findings.push_back(at(file, number, "only comm/options.cc reads the environment"));
    }
    std::string_view rest = trimmed(line);
    if (!rest.starts_with('#')) continue;
    rest = trimmed(rest.substr(1));
    if (rest.starts_with("if") || rest.starts_with("elif")) {
      if (!may_branch)
        findings.push_back(
            at(file, number, "no conditional compilation here: a file for each platform"));
    } else if (rest.starts_with("define")) {
      rest = trimmed(rest.substr(6));
      const auto end = std::ranges::find_if_not(rest, is_word_char);
      if (end != rest.end() && *end == '(')
        findings.push_back(at(file, number, "no function-like macro"));
    }
  }
  return findings;
}

Findings check_place(const File& file) {
  static constexpr std::array kTop = {
      "CMakeLists.txt"sv, "CMakePresets.json"sv, "LICENSE"sv, "README.md"sv, "comm"sv, "dev"sv,
      "docker"sv,         "examples"sv,          "moe"sv,     "runtime"sv,   "test"sv, "wide"sv};
  static constexpr std::array kFolders = {"/docs/"sv, "/src/"sv, "/include/"sv, "/cmake/"sv,
                                          "/scripts/"sv};
  Findings findings;
  if (!file.path.starts_with('.') && std::ranges::find(kTop, top_of(file.path)) == kTop.end())
    findings.push_back(at(file, 1, "the top level has no place for this"));
  for (const std::string_view folder : kFolders) {
    if (("/" + file.path).find(folder) != std::string::npos)
      findings.push_back(at(file, 1, "modules have no such folder"));
  }
  const bool module = !below(top_of(file.path)).empty();
  if (module && file.path.ends_with(".cu") && !folder_of(file.path).ends_with("/kernel"))
    findings.push_back(at(file, 1, "device code lies in kernel/"));
  return findings;
}

Findings check_used(const std::vector<File>& tree) {
  std::set<std::string, std::less<>> used;
  for (const File& file : tree) {
    if (file.path.ends_with("CMakeLists.txt")) {
      std::string words = file.text;
      std::ranges::replace_if(
          words, [](char c) { return c == '(' || c == ')' || c == '"'; }, ' ');
      std::istringstream in(words);
      const std::filesystem::path folder = std::filesystem::path(file.path).parent_path();
      for (std::string word; in >> word;) {
        constexpr auto kRoot = "${PROJECT_SOURCE_DIR}/"sv;
        const bool rooted = word.starts_with(kRoot);
        const std::filesystem::path named =
            rooted ? std::filesystem::path(word.substr(kRoot.size())) : folder / word;
        used.insert(named.lexically_normal().generic_string());
        used.insert(named.lexically_normal().generic_string() + ".cc");  // motley_test(x_test)
      }
    } else if (is_code(file)) {
      for (const Include& include : includes_of(file)) {
        const bool own = std::filesystem::path(file.path).replace_extension() ==
                         std::filesystem::path(include.path).replace_extension();
        if (!own) used.emplace(include.path);
      }
    }
  }
  Findings findings;
  for (const File& file : tree) {
    if (is_code(file) && !is_public_header(file.path) && !used.contains(file.path))
      findings.push_back(at(file, 1, "nothing builds or includes this file"));
  }
  return findings;
}

}  // namespace motley::tidy
