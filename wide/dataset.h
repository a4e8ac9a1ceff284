// wide/dataset.h: labelled sparse rows in memory, as read from files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "wide/huge_pages.h"

namespace motley::wide {

// Text, one row a line.
enum class Format : std::uint8_t {
  kLibsvm = 0,  // label index:value …, between blanks
  kLibffm = 1,  // label field:index:value …
  kCsv =
      2,  // cells between commas, or what a schema says (schema.h); the first line may be a header
  kCriteo = 3,  // label, 13 numbers, 26 categories between tabs; no header
  kAvazu = 4,   // CSV with the header id,click,hour,…
};
const char* name(Format format) noexcept;

// resize() leaves new elements unset.
template <class T>
using Column = std::vector<T, UnsetHugePages<T>>;

// Compressed sparse rows. Row r owns entries [row_begin[r], row_begin[r + 1]) of the three arrays.
struct Dataset {
  Format format = Format::kLibsvm;
  Column<std::uint64_t> row_begin{0};  // [rows + 1]
  Column<float> labels;                // [rows]; 0 or 1 where read as Labels::kBinary, else targets
  Column<float> weights;               // [rows], how much each counts, at least 0; or empty: all 1
  Column<std::uint32_t> ids;           // [entries]; opaque: any number below 2^32
  Column<float> values;                // [entries], finite; or empty: all 1
  Column<std::uint32_t> fields;        // [entries]; empty for libsvm, or if not asked for
  // How text became these rows, for reading more alike (schema.h); empty: ids as they were.
  std::string recipe;
  // Of a line, where only this number says that label and weight are left out; else 0.
  std::size_t unlabelled_cells = 0;
  // What hashed ids are of, as "column=value", where ReadOptions asks for it.
  std::unordered_map<std::uint32_t, std::string> names;

  std::size_t rows() const noexcept { return labels.size(); }
  std::size_t entries() const noexcept { return ids.size(); }
  float value(std::size_t entry) const noexcept { return values.empty() ? 1.0f : values[entry]; }
};

// The rows with these numbers, in this order; those of recipe and names stay.
Dataset rows_of(const Dataset& data, std::span<const std::uint64_t> rows);

// Adds the rows of `more`, which has the same format and recipe, and weights if `to` has them. Only
// where both say nothing of values does the sum, too.
void append(Dataset& to, const Dataset& more);

}  // namespace motley::wide
