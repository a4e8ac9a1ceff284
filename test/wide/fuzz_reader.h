// test/wide/fuzz_reader.h: what both fuzz drivers do with an input: parse it under every kind of
// label, and hold the result to what readers promise. Only Error may be thrown.
#pragma once

#include <cmath>
#include <string_view>

#include "comm/error.h"
#include "test/support/fuzz.h"
#include "wide/reader.h"

namespace motley::wide {

using test::require;

inline void check_parse(std::string_view text, const ReadOptions& options) {
  try {
    const Dataset data = parse_text(text, "fuzz", options);
    require(data.rows() > 0 && data.row_begin.size() == data.rows() + 1);
    require(data.row_begin.front() == 0 && data.row_begin.back() == data.entries());
    require(data.values.size() == data.entries());
    require(data.fields.size() == (data.format != Format::kLibsvm ? data.entries() : 0));
    for (std::size_t r = 0; r < data.rows(); ++r) {
      require(data.row_begin[r] <= data.row_begin[r + 1]);
      require(std::isfinite(data.labels[r]));
    }
    for (const float value : data.values) require(std::isfinite(value));
  } catch (const Error& error) {
    require(std::string_view(error.what()).substr(0, 5) == "fuzz:");
  }
}

inline void check_parse(std::string_view text, std::optional<Format> format) {
  for (const Labels labels : {Labels::kBinary, Labels::kReal, Labels::kOptional}) {
    check_parse(text, {.format = format, .labels = labels});
  }
}

}  // namespace motley::wide
