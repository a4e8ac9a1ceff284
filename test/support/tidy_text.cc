// The rules of tidy.h that need to know where literals and functions begin and end.
#include <algorithm>
#include <cctype>
#include <string_view>

#include "test/support/tidy.h"

namespace motley::tidy {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kFunctionLines = 60;
constexpr std::size_t kFileLines = 400;
constexpr std::size_t kPublicHeaderLines = 200;

bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// One past the end of the comment or literal that starts at `i`; `i` if none does. The blanks begin
// and end inside the quotes of a literal: [first, last).
struct Span {
  std::size_t first, last, end;
};

Span quoted(std::string_view text, std::size_t i, char quote) {
  std::size_t j = i + 1;
  while (j < text.size() && text[j] != quote && text[j] != '\n') j += text[j] == '\\' ? 2 : 1;
  j = std::min(j, text.size());
  return {i + 1, j, std::min(j + 1, text.size())};
}

Span skipped(std::string_view text, std::size_t i) {
  const std::string_view rest = text.substr(i);
  const auto until = [&](std::string_view stop, std::size_t from) {
    const std::size_t found = text.find(stop, from);
    return found == text.npos ? text.size() : found;
  };
  if (rest.starts_with("//")) return {i, until("\n", i), until("\n", i)};
  if (rest.starts_with("/*")) {
    const std::size_t end = std::min(until("*/", i + 2) + 2, text.size());
    return {i, end, end};
  }
  if (rest.starts_with("R\"") && (i == 0 || !is_word_char(text[i - 1]))) {
    const std::size_t open = until("(", i);
    const std::string stop = ")" + std::string(text.substr(i + 2, open - i - 2)) + "\"";
    const std::size_t close = until(stop, open);
    return {std::min(open + 1, text.size()), close, std::min(close + stop.size(), text.size())};
  }
  if (rest.starts_with('"')) return quoted(text, i, '"');
  const bool separator = i > 0 && is_word_char(text[i - 1]);  // 1'000'000
  if (rest.starts_with('\'') && !separator) return quoted(text, i, '\'');
  return {i, i, i};
}

// Behind the bracket that closes the one at `i`.
std::size_t behind(std::string_view code, std::size_t i, char open, char close) {
  int depth = 0;
  for (; i < code.size(); ++i) {
    if (code[i] == open) ++depth;
    if (code[i] == close && --depth == 0) return i + 1;
  }
  return code.size();
}

std::size_t first_not_blank(std::string_view code, std::size_t i) {
  while (i < code.size() && std::isspace(static_cast<unsigned char>(code[i])) != 0) ++i;
  return i;
}

// Where a declaration begins that follows `i`: behind blanks and access specifiers.
std::size_t declaration(std::string_view code, std::size_t i) {
  i = first_not_blank(code, i);
  for (const std::string_view label : {"public:", "protected:", "private:"}) {
    if (code.substr(i).starts_with(label)) return declaration(code, i + label.size());
  }
  return i;
}

// Does the text before a '{' open a scope whose functions are to be found inside?
bool opens_scope(std::string_view head) {
  while (head.starts_with("template")) {
    const std::size_t parameters = std::min(head.find('<'), head.size());
    head.remove_prefix(first_not_blank(head, behind(head, parameters, '<', '>')));
  }
  if (head.find('(') != head.npos)
    return head.starts_with("struct alignas") || head.starts_with("class alignas");
  for (const std::string_view word :
       {"namespace", "inline", "class", "struct", "union", "enum", "extern"}) {
    if (head.starts_with(word)) return true;
  }
  return false;
}

std::size_t line_of(std::string_view code, std::size_t i) {
  return 1 + static_cast<std::size_t>(std::ranges::count(code.substr(0, i), '\n'));
}

// Functions by their braces: a '{' outside of functions that follows a ')' and opens no scope. A
// brace before ',' or '{' is a member's initialiser, and the function's own is still to come.
Findings check_functions(const File& file, std::string_view code) {
  Findings findings;
  std::size_t head = 0;
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (code[i] == '#') {  // a directive ends with its line
      i = std::min(code.find('\n', i), code.size());
      head = i;
    } else if (code[i] == ';' || code[i] == '}') {
      head = i + 1;
    } else if (code[i] == '{') {
      head = declaration(code, head);
      const std::string_view text = code.substr(std::min(head, i), i - std::min(head, i));
      if (opens_scope(text)) {
        head = i + 1;
        continue;
      }
      const std::size_t end = behind(code, i, '{', '}');
      const std::size_t next = first_not_blank(code, end);
      const bool initialiser = next < code.size() && (code[next] == ',' || code[next] == '{');
      if (!initialiser) {
        const std::size_t first = line_of(code, head);
        const std::size_t lines = line_of(code, end) - first + 1;
        if (text.find(')') != text.npos && lines > kFunctionLines)
          findings.push_back(file.path + ":" + std::to_string(first) + ": a function of " +
                             std::to_string(lines) + " lines, at most " +
                             std::to_string(kFunctionLines));
        head = end;
      }
      i = end - 1;
    }
  }
  return findings;
}

}  // namespace

std::string code_only(const std::string& text) {
  std::string code = text;
  for (std::size_t i = 0; i < text.size();) {
    const Span span = skipped(text, i);
    for (std::size_t j = span.first; j < span.last; ++j) {
      if (code[j] != '\n') code[j] = ' ';
    }
    i = std::max(span.end, i + 1);
  }
  return code;
}

Findings check_lengths(const File& file) {
  Findings findings;
  std::size_t number = 1;
  std::size_t columns = 0;
  for (const char c : file.text) {
    if (c == '\n') {
      if (columns > kColumns)
        findings.push_back(file.path + ":" + std::to_string(number) + ": " +
                           std::to_string(columns) + " columns, at most " +
                           std::to_string(kColumns));
      ++number;
      columns = 0;
    } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {  // UTF-8: count first bytes only
      ++columns;
    }
  }
  const std::size_t limit = is_public_header(file.path) ? kPublicHeaderLines : kFileLines;
  if (number - 1 > limit)
    findings.push_back(file.path + ":1: " + std::to_string(number - 1) + " lines, at most " +
                       std::to_string(limit));
  const Findings functions = check_functions(file, code_only(file.text));
  findings.insert(findings.end(), functions.begin(), functions.end());
  return findings;
}

}  // namespace motley::tidy
