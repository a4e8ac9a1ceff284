#include "wide/read/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "wide/read/number.h"

namespace motley::wide {
namespace {

constexpr std::uint64_t kLargestIndex = 0xffffffffu;

// Entries of a row as keys whose equality is a duplicate.
std::uint64_t key(const Rows& rows, std::size_t i, bool fields) {
  return (fields ? std::uint64_t{rows.fields[i]} << 32 : 0) | rows.ids[i];
}

// Sorts the row of entries [begin, end) by keys, and adds up values of equal ones.
void add_up_equal(Rows& rows, std::size_t begin, bool fields) {
  std::vector<std::pair<std::uint64_t, float>> row;
  for (std::size_t i = begin; i < rows.entries; ++i) {
    row.emplace_back(key(rows, i, fields), rows.values[i]);
  }
  std::stable_sort(row.begin(), row.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::size_t last = begin;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i > 0 && row[i].first == row[i - 1].first) {
      rows.values[last - 1] += row[i].second;
      continue;
    }
    rows.ids[last] = static_cast<std::uint32_t>(row[i].first);
    if (fields) rows.fields[last] = static_cast<std::uint32_t>(row[i].first >> 32);
    rows.values[last++] = row[i].second;
  }
  rows.entries = last;
}

// What ends a token.
bool ends(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Reads an index and its colon; nullptr where they are not plainly that.
const char* quick_index(const char* p, std::uint32_t& out) {
  std::uint64_t value = 0;
  const int n = digits8(p, value);
  p += n;
  if (n == 8) {
    for (int more = 0; is_digit(*p) && more < 3; ++more, ++p) {
      value = value * 10 + static_cast<std::uint64_t>(*p - '0');
    }
  }
  if (n == 0 || *p != ':' || value > kLargestIndex) return nullptr;
  out = static_cast<std::uint32_t>(value);
  return p + 1;
}

// Reads up to 15 digits, with sign and point; nullptr where the text is more than that.
const char* quick_value(const char* p, float& out) {
  if (*p == '1' && ends(p[1])) {
    out = 1;
    return p + 1;
  }
  const bool negative = *p == '-';
  p += negative ? 1 : 0;
  std::uint64_t whole = 0;
  std::uint64_t part = 0;
  int decimals = 0;
  int digits = digits8(p, whole);
  p += digits;
  if (*p == '.') {
    decimals = digits8(++p, part);
    p += decimals;
    digits += decimals;
  }
  // 8 + 8 digits would be too many for a double to hold exactly.
  if (digits == 0 || digits > 15 || !ends(*p)) return nullptr;
  const double mantissa = static_cast<double>(whole) * kTens[decimals] + static_cast<double>(part);
  const double value = mantissa / kTens[decimals];
  out = static_cast<float>(negative ? -value : value);
  return p;
}

// The label -1, 0 or 1, or of other kinds what quick_value() reads; nullptr for all else.
const char* quick_label(const char* p, Labels labels, float& label) {
  if (labels != Labels::kBinary) return quick_value(p, label);
  const bool negative = *p == '-';
  p += negative || *p == '+' ? 1 : 0;
  if ((*p != '0' && *p != '1') || !ends(p[1])) return nullptr;
  label = static_cast<float>(*p - '0');
  if (negative) label = -label;
  return p + 1;
}

}  // namespace

// Reads a row in plain form: whoever it does not understand goes to slow_row(), which knows every
// form and says what is wrong. Returns what follows the row, or nullptr, with `out` as it was but
// for what lies behind its entries.
template <bool kFields>
const char* TokenParser::quick_row(const char* p, const char* end, Distinct& distinct,
                                   Rows& out) const {
  float label = 0;
  while (is_blank(*p)) ++p;
  p = quick_label(p, settings_.labels, label);
  if (p == nullptr) return nullptr;
  std::uint32_t* const ids = out.ids.data();
  std::uint32_t* const fields = out.fields.data();
  float* const values = out.values.data();
  std::size_t n = out.entries;
  std::uint64_t last = 0;
  bool ascending = true;
  for (;;) {
    while (is_blank(*p)) ++p;
    if (*p == '\r' && p[1] == '\n') ++p;
    if (*p == '\n') break;
    std::uint64_t new_key = 1;  // above all that came before
    if constexpr (kFields) {
      p = quick_index(p, fields[n]);
      if (p == nullptr) return nullptr;
      new_key += std::uint64_t{fields[n]} << 32;
    }
    p = quick_index(p, ids[n]);
    if (p == nullptr) return nullptr;
    p = quick_value(p, values[n]);
    if (p == nullptr) return nullptr;
    new_key += ids[n++];
    ascending = ascending && new_key > last;
    last = new_key;
  }
  if (p >= end) return nullptr;
  if (!ascending) {
    const auto key_of = [&out](std::size_t i) { return key(out, i, kFields); };
    const bool few = n - out.entries <= Distinct::kMost;
    if (!few || !distinct.holds(out.entries, n, key_of)) return nullptr;
  }
  if (settings_.labels == Labels::kBinary) {
    std::uint64_t& first = label == 0 ? out.seen.zero : out.seen.minus_one;
    if (label != 1 && first == 0) first = out.lines;
    if (label == -1) label = 0;
  }
  out.labels.push_back(settings_.labels == Labels::kOptional ? 0 : label);
  out.entries = n;
  out.row_end.push_back(n);
  return p + 1;
}

void TokenParser::parse(std::string_view text, Rows& out) const {
  const bool fields = has_fields();
  // The shortest entry and what parts it from the next: "1:1 ", "1:1:1 ".
  out.make_room(text.size() / (fields ? 6 : 4) + 2, fields);
  const bool quick = settings_.bits == 0;
  const char* p = text.data();
  const char* const end = p + text.size();
  const char* line_end = nullptr;
  Distinct distinct;
  try {
    while (p < end) {
      ++out.lines;
      if (quick) {
        const char* const next = fields ? quick_row<true>(p, end, distinct, out)
                                        : quick_row<false>(p, end, distinct, out);
        if (next != nullptr) {
          p = next;
          continue;
        }
      }
      line_end = static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end - p)));
      slow_row({{p, static_cast<std::size_t>(line_end - p)}, p}, out);
      p = line_end + 1;
    }
  } catch (const Error& error) {
    out.bad_line = out.lines;
    out.bad = error.what();
  }
}

void TokenParser::slow_row(Line line, Rows& out) const {
  if (line.text.find('\0') != std::string_view::npos) {
    throw Error(ErrorCode::kInvalid, "holds a NUL byte, so this is not a text file");
  }
  if (line.text.ends_with('\r')) line.text.remove_suffix(1);
  line.text = line.text.substr(0, line.text.find('#'));
  const auto skip_blanks = [&line] {
    const std::size_t first = std::min(line.text.find_first_not_of(" \t"), line.text.size());
    line.text.remove_prefix(first);
    return !line.text.empty();
  };
  if (!skip_blanks()) return;
  add_label(line, out);
  while (skip_blanks()) {
    const std::string_view token = line.text.substr(0, line.text.find_first_of(" \t"));
    add_feature(line, token, out);
    line.text.remove_prefix(token.size());
  }
  end_row(out);
}

void TokenParser::add_label(Line& line, Rows& out) const {
  const std::string_view token = line.text.substr(0, line.text.find_first_of(" \t"));
  const bool feature = token.find(':') != std::string_view::npos;
  if (feature && settings_.labels == Labels::kOptional) {
    out.labels.push_back(0);
    return;
  }
  const Place place = line.place(token);
  if (feature) throw bad_token(place, "is a feature where the row's label is expected");
  out.labels.push_back(label_of(token, settings_.labels, out.lines, place.column, out.seen));
  line.text.remove_prefix(token.size());
}

std::uint32_t TokenParser::index(const Line& line, std::string_view token, const char*& p,
                                 const char* what) const {
  const char* const stop = token.data() + token.size();
  const char* const first = p;
  std::uint64_t value = 0;
  for (; p != stop && is_digit(*p); ++p) {
    if (value > kLargestIndex) continue;  // already too large
    value = value * 10 + static_cast<std::uint64_t>(*p - '0');
  }
  const bool digits = p != first;
  if (!digits || p == stop || *p != ':') {
    const bool negative = !digits && first != stop && *first == '-';
    throw bad_token(
        line.place(token),
        fmt::format("{}. Expected {}",
                    negative ? fmt::format("has a negative {}", what)
                             : fmt::format("needs a whole number and ':' as its {}", what),
                    has_fields() ? "field:index:value" : "index:value"));
  }
  if (value > kLargestIndex) {
    throw bad_token(line.place(token),
                    fmt::format("has the {} {}, which exceeds the limit {} (2^32 - 1). Hash ids "
                                "with --bits",
                                what, std::string_view(first, static_cast<std::size_t>(p - first)),
                                kLargestIndex));
  }
  ++p;
  return static_cast<std::uint32_t>(value);
}

void TokenParser::add_feature(const Line& line, std::string_view token, Rows& out) const {
  const char* p = token.data();
  const std::size_t i = out.entries;
  if (has_fields()) out.fields[i] = index(line, token, p, "field");
  const char* const stop = token.data() + token.size();
  if (settings_.bits == 0) {
    out.ids[i] = index(line, token, p, "index");
  } else {
    const char* const colon = std::find(p, stop, ':');
    if (colon == p || colon == stop) {
      throw bad_token(line.place(token), "needs a name and ':' before its value");
    }
    const std::string_view text(p, static_cast<std::size_t>(colon - p));
    out.ids[i] = to_bits(hash_text(0, text), settings_.bits);
    if (settings_.names) out.names.emplace_back(out.ids[i], text);
    p = colon + 1;
  }
  const std::string_view value(p, static_cast<std::size_t>(stop - p));
  if (value.find(':') != std::string_view::npos) {
    throw bad_token(line.place(token),
                    fmt::format("has too many ':' for a {} file", name(settings_.format)));
  }
  out.values[i] = value == "1" ? 1.0f : float_of(value, line.place(token), "value");
  ++out.entries;
}

void TokenParser::end_row(Rows& out) const {
  const bool fields = has_fields();
  const std::size_t begin = out.row_end.empty() ? 0 : out.row_end.back();
  bool ascending = true;
  for (std::size_t i = begin + 1; i < out.entries; ++i) {
    ascending = ascending && key(out, i - 1, fields) < key(out, i, fields);
  }
  if (!ascending && settings_.bits > 0) {
    add_up_equal(out, begin, fields);
  } else if (!ascending) {
    std::vector<std::uint64_t> keys;
    for (std::size_t i = begin; i < out.entries; ++i) keys.push_back(key(out, i, fields));
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("index {} appears twice in this row{}. Keep one of them",
                              *twice & kLargestIndex,
                              fields ? fmt::format(" in field {}", *twice >> 32) : ""));
    }
  }
  out.row_end.push_back(out.entries);
}

std::optional<Format> format_of_tokens(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::size_t stop = std::min(line.find_first_of(" \t\r", colon), line.size());
    return line.find(':', colon + 1) < stop ? Format::kLibffm : Format::kLibsvm;
  }
  return std::nullopt;
}

}  // namespace motley::wide
