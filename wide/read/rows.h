// wide/read/rows.h: rows of a piece of text, and what makes them of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace motley::wide {

// Bytes that may be read, though not used, behind a piece of text.
inline constexpr std::size_t kPadding = 16;

struct Rows {
  // Of the first line with this label in the piece, for what goes beyond it; 0: none has.
  struct Seen {
    std::uint64_t zero = 0;
    std::uint64_t minus_one = 0;
  };

  std::vector<std::uint64_t> row_end;  // entries up to the end of each row
  std::vector<float> labels;           // [rows]
  std::vector<float> weights;          // [rows], or empty: none are told
  // Of these the first `entries` are in use; fields may have no memory if rows have none.
  std::vector<std::uint32_t> ids;
  std::vector<std::uint32_t> fields;
  std::vector<float> values;
  std::size_t entries = 0;
  std::uint64_t lines = 0;
  // Where parsing stopped, counted from 1 in the piece, and why; 0: it did not.
  std::uint64_t bad_line = 0;
  std::string bad;
  Seen seen;
  std::vector<std::pair<std::uint32_t, std::string>> names;  // of ids, where asked for

  void clear() {
    row_end.clear();
    labels.clear();
    weights.clear();
    names.clear();
    entries = 0;
    lines = 0;
    bad_line = 0;
    seen = {};
  }
  // Makes room for at least n entries behind those in use.
  void make_room(std::size_t n, bool with_fields) {
    const std::size_t needed = entries + n;
    if (ids.size() >= needed && (!with_fields || fields.size() >= needed)) return;
    const std::size_t size = std::max(needed, ids.size() + ids.size() / 2);
    ids.resize(size);
    values.resize(size);
    if (with_fields) fields.resize(size);
  }
};

// Stateless between calls: any thread may parse any piece.
class TextParser {
 public:
  virtual ~TextParser() = default;
  virtual bool has_fields() const = 0;
  // Adds the rows of `text`, which is whole lines, each with its newline, and has kPadding readable
  // bytes behind it.
  virtual void parse(std::string_view text, Rows& out) const = 0;
};

}  // namespace motley::wide
