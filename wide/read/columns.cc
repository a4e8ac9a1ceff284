#include "wide/read/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "wide/read/number.h"

namespace motley::wide {
namespace {

constexpr std::uint64_t kOnes = 0x0101010101010101u;
constexpr std::uint64_t kTops = 0x8080808080808080u;

// A bit in the lowest byte of x that is 0 (bits above it mean nothing), or 0.
std::uint64_t zero_byte(std::uint64_t x) { return (x - kOnes) & ~x & kTops; }

// Finds the ends of cells in words.
struct Ends {
  explicit Ends(char delimiter) : delimiters(kOnes * static_cast<unsigned char>(delimiter)) {}

  // 8 times the first place of a delimiter or newline in x, and 7; else 64 or more.
  int bit(std::uint64_t x) const {
    constexpr std::uint64_t kNewlines = kOnes * static_cast<unsigned char>('\n');
    const std::uint64_t found = zero_byte(x ^ delimiters) | zero_byte(x ^ kNewlines);
    return found == 0 ? 64 : __builtin_ctzll(found);
  }

  std::uint64_t delimiters;
};

// The first delimiter or newline from p on; there is a newline.
const char* cell_end(const char* p, char delimiter) {
  const Ends ends(delimiter);
  for (;; p += 8) {
    const int bit = ends.bit(load8(p));
    if (bit < 64) return p + bit / 8;
  }
}

// Reads a cell in quotes at p, up to its last quote; p moves behind that. False if it does not end
// before the newline.
bool read_quoted(const char*& p, std::string& out) {
  out.clear();
  for (++p; *p != '\n'; ++p) {
    if (*p == '"') {
      if (p[1] != '"') {
        ++p;
        return true;
      }
      ++p;
    }
    out += *p;
  }
  return false;
}

}  // namespace

ColumnParser::ColumnParser(Settings settings) : settings_(std::move(settings)) {
  for (const ColumnPlan::Cell& cell : settings_.plan.cells) {
    has_label_ = has_label_ || cell.type == ColumnType::kLabel;
    has_weight_ = has_weight_ || cell.type == ColumnType::kWeight;
  }
}

void ColumnParser::parse(std::string_view text, Rows& out) const {
  const char* p = text.data();
  const char* const end = p + text.size();
  if (const void* const nul = std::memchr(p, 0, text.size())) {
    out.bad_line =
        1 + static_cast<std::uint64_t>(std::count(p, static_cast<const char*>(nul), '\n'));
    out.bad = "holds a NUL byte, so this is not a text file";
    return;
  }
  try {
    while (p < end) {
      ++out.lines;
      if (*p == '\n' || (*p == '\r' && p[1] == '\n')) {
        p += *p == '\r' ? 2 : 1;
        continue;
      }
      p = add_row(p, out);
    }
  } catch (const Error& error) {
    out.bad_line = out.lines;
    out.bad = error.what();
  }
}

// Takes cells from i on, for as long as they are in the form in which most cells of most files are:
// a word or two say where one ends and what it is. Where the row's last is, too, p moves behind it.
const char* ColumnParser::add_plain_cells(const char* p, std::size_t& i, Rows& out) const {
  for (;;) {
    const std::size_t before = i;
    if (i == settings_.plan.cells.size()) return p;
    switch (settings_.plan.cells[i].type) {
      case ColumnType::kCategory:
        p = add_plain_categories(p, i, out);
        break;
      case ColumnType::kBucket:
        p = add_plain_buckets(p, i, out);
        break;
      case ColumnType::kLabel:
        p = add_plain_label(p, i, out);
        break;
      default:
        return p;
    }
    if (i == before) return p;
  }
}

// Of 0 and 1.
const char* ColumnParser::add_plain_label(const char* p, std::size_t& i, Rows& out) const {
  if ((*p != '0' && *p != '1') || p[1] != end_of_cell(i)) return p;
  const bool zero = *p == '0';
  if (zero && settings_.labels == Labels::kBinary && out.seen.zero == 0) out.seen.zero = out.lines;
  out.labels.push_back(zero || settings_.labels == Labels::kOptional ? 0 : 1);
  ++i;
  return p + 2;
}

// Not in quotes, and shorter than 16 bytes.
const char* ColumnParser::add_plain_categories(const char* p, std::size_t& i, Rows& out) const {
  const std::vector<ColumnPlan::Cell>& cells = settings_.plan.cells;
  const Ends ends(settings_.plan.schema.delimiter);
  const int bits = settings_.plan.schema.bits;
  std::uint32_t* const ids = out.ids.data() + out.entries;
  std::uint32_t* const fields = out.fields.data() + out.entries;
  float* const values = out.values.data() + out.entries;
  std::size_t n = 0;
  for (; i < cells.size() && cells[i].type == ColumnType::kCategory && *p != '"'; ++i, ++n) {
    const std::uint64_t word = load8(p);
    const char end = end_of_cell(i);
    auto size = static_cast<std::size_t>(ends.bit(word)) / 8;
    std::uint64_t hash = hash_short(cells[i].seed, word, size);
    if (p[size] != end) {
      if (size < 8) break;
      size = 8 + static_cast<std::size_t>(ends.bit(load8(p + 8))) / 8;
      if (size == 16 || p[size] != end) break;
      hash = hash_text(cells[i].seed, {p, size});
    }
    if (end == '\n' && size > 0 && p[size - 1] == '\r') break;
    ids[n] = to_bits(hash, bits);
    fields[n] = cells[i].field;
    values[n] = 1;
    p += size + 1;
  }
  out.entries += n;
  return p;
}

// Whole numbers of up to 8 characters, and empty cells.
const char* ColumnParser::add_plain_buckets(const char* p, std::size_t& i, Rows& out) const {
  const std::vector<ColumnPlan::Cell>& cells = settings_.plan.cells;
  const int bits = settings_.plan.schema.bits;
  std::uint32_t* const ids = out.ids.data() + out.entries;
  std::uint32_t* const fields = out.fields.data() + out.entries;
  float* const values = out.values.data() + out.entries;
  std::size_t n = 0;
  for (; i < cells.size() && cells[i].type == ColumnType::kBucket; ++i, ++n) {
    const std::uint64_t word = load8(p);
    const int minus = (word & 0xff) == '-' ? 1 : 0;
    std::uint64_t size = 0;
    const int digits = digits_of(word >> (8 * minus), size);
    p += minus + digits;
    if (*p != end_of_cell(i) || digits < minus) {
      p -= minus + digits;
      break;
    }
    const std::int64_t bucket = buckets_.of(static_cast<std::uint32_t>(size));
    const auto number = static_cast<std::uint64_t>(minus != 0 ? -bucket : bucket);
    const std::uint64_t hash = hash_word(cells[i].seed, number);
    ids[n] = to_bits(digits == 0 ? cells[i].seed : hash, bits);
    fields[n] = cells[i].field;
    values[n] = 1;
    ++p;
  }
  out.entries += n;
  return p;
}

const char* ColumnParser::add_row(const char* p, Rows& out) const {
  const char* const begin = p;
  const auto& cells = settings_.plan.cells;
  const char delimiter = settings_.plan.schema.delimiter;
  out.make_room(cells.size(), true);
  std::string unquoted;
  for (std::size_t i = 0;; ++i) {
    if (!settings_.names) {
      p = add_plain_cells(p, i, out);
      if (i == cells.size() && p[-1] == '\n') break;
    }
    const char* const first = p;
    const auto column = static_cast<std::size_t>(first - begin) + 1;
    std::string_view text;
    if (*p == '"') {
      if (!read_quoted(p, unquoted)) {
        throw bad_token({"\"", column}, "begins a cell in quotes that does not end on its line");
      }
      if (*p == '\r' && p[1] == '\n') ++p;
      if (*p != delimiter && *p != '\n') {
        throw bad_token({{first, static_cast<std::size_t>(p - first)}, column},
                        "is followed by more than the end of its cell");
      }
      text = unquoted;
    } else {
      p = cell_end(p, delimiter);
      text = {first, static_cast<std::size_t>(p - first)};
      if (*p == '\n' && text.ends_with('\r')) text.remove_suffix(1);
    }
    if (i == cells.size()) {
      fail_of_cells(i + 1 + static_cast<std::size_t>(std::count(p, cell_end(p, '\n'), delimiter)));
    }
    if (cells[i].type != ColumnType::kSkip) add_cell(cells[i], {text, column}, out);
    if (*p++ == delimiter) continue;
    if (i + 1 < cells.size()) fail_of_cells(i + 1);
    break;
  }
  if (!has_label_) out.labels.push_back(0);
  out.row_end.push_back(out.entries);
  return p;
}

void ColumnParser::fail_of_cells(std::size_t found) const {
  throw Error(ErrorCode::kInvalid, fmt::format("has {} cells, but {} columns are expected", found,
                                               settings_.plan.cells.size()));
}

void ColumnParser::add(const ColumnPlan::Cell& cell, std::uint64_t hash, std::string_view shown,
                       float value, Rows& out) const {
  const std::size_t i = out.entries++;
  out.ids[i] = to_bits(hash, settings_.plan.schema.bits);
  out.fields[i] = cell.field;
  out.values[i] = value;
  if (!settings_.names) return;
  out.names.emplace_back(out.ids[i],
                         shown.empty() ? cell.name : fmt::format("{}={}", cell.name, shown));
}

void ColumnParser::add_cell(const ColumnPlan::Cell& cell, const Place& place, Rows& out) const {
  const std::string_view text = place.shown;
  switch (cell.type) {
    case ColumnType::kCategory:
      return add(cell, hash_text(cell.seed, text), text.empty() ? "(empty)" : text, 1, out);
    case ColumnType::kLabel:
      out.labels.push_back(
          text.empty() && settings_.labels == Labels::kOptional
              ? 0
              : label_of(text, settings_.labels, out.lines, place.column, out.seen));
      return;
    case ColumnType::kWeight: {
      const float weight = float_of(text, place, "weight");
      if (weight < 0) throw bad_token(place, "is a weight below 0");
      out.weights.push_back(weight);
      return;
    }
    case ColumnType::kList:
      return add_list(cell, text, out);
    case ColumnType::kHour: {
      if (text.empty()) return add(cell, cell.seed, "(empty)", 1, out);
      if (text.size() < 2 || !is_digit(text.back()) || !is_digit(text[text.size() - 2])) {
        throw bad_token(place, fmt::format("is no time YYMMDDHH of column {}", cell.name));
      }
      const std::string_view hour = text.substr(text.size() - 2);
      return add(cell, hash_text(cell.seed, hour), hour, 1, out);
    }
    case ColumnType::kNumber:
    case ColumnType::kLog:
    case ColumnType::kBucket:
      return add_number(cell, place, out);
    case ColumnType::kSkip:
      return;
  }
}

void ColumnParser::add_number(const ColumnPlan::Cell& cell, const Place& place, Rows& out) const {
  const bool bucket = cell.type == ColumnType::kBucket;
  if (place.shown.empty()) {
    if (bucket) add(cell, cell.seed, "(empty)", 1, out);
    return;
  }
  const auto value = static_cast<double>(float_of(place.shown, place, cell.name.c_str()));
  if (bucket) {
    const std::int64_t number = bucket_of(value);
    add(cell, hash_word(cell.seed, static_cast<std::uint64_t>(number)),
        settings_.names ? fmt::format("bucket {}", number) : std::string(), 1, out);
  } else if (cell.type == ColumnType::kNumber) {
    add(cell, cell.seed, "", static_cast<float>(value), out);
  } else {
    const double log = std::log1p(std::abs(value));
    add(cell, cell.seed, "", static_cast<float>(value < 0 ? -log : log), out);
  }
}

void ColumnParser::add_list(const ColumnPlan::Cell& cell, std::string_view text, Rows& out) const {
  const std::size_t first = out.entries;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find_first_of("| "));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    if (part.empty()) continue;
    const std::uint64_t hash = hash_text(cell.seed, part);
    const std::uint32_t id = to_bits(hash, settings_.plan.schema.bits);
    bool seen = false;
    for (std::size_t i = first; i < out.entries && !seen; ++i) seen = out.ids[i] == id;
    if (seen) continue;
    out.make_room(settings_.plan.cells.size() + 1, true);
    add(cell, hash, part, 1, out);
  }
}

}  // namespace motley::wide
