// wide/dataset.h: labelled sparse rows in memory, as read from a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace motley::wide {

// Text formats, one row a line: a label, then tokens separated by blanks.
enum class Format : std::uint8_t {
  kLibsvm,  // index:value
  kLibffm,  // field:index:value
};

constexpr const char* name(Format format) noexcept {
  return format == Format::kLibsvm ? "libsvm" : "libffm";
}

// Compressed sparse rows. Row r owns entries [row_begin[r], row_begin[r + 1]) of the three arrays.
struct Dataset {
  Format format = Format::kLibsvm;
  std::vector<std::uint64_t> row_begin{0};  // [rows + 1]
  std::vector<float> labels;                // [rows]; 0 or 1 where read as Labels::kBinary
  std::vector<std::uint32_t> ids;           // [entries]; opaque: any number below 2^32
  std::vector<float> values;                // [entries]; finite
  std::vector<std::uint32_t> fields;        // [entries] for libffm, else empty

  std::size_t rows() const noexcept { return labels.size(); }
  std::size_t entries() const noexcept { return ids.size(); }
};

}  // namespace motley::wide
