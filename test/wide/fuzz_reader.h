// test/wide/fuzz_reader.h: what both fuzz drivers do with an input: parse it under every kind of
// label, and hold the result to what readers promise. Only Error may be thrown.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <variant>

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

// Names are kept by a slower way through the readers: it makes the same rows, or the same error.
inline void check_ways(std::string_view text, ReadOptions options) {
  const auto read = [&](bool names) -> std::variant<Dataset, std::string> {
    options.names = names;
    try {
      return parse_text(text, "fuzz", options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const auto quick = read(false);
  const auto slow = read(true);
  require(quick.index() == slow.index());
  if (const auto* const error = std::get_if<std::string>(&quick)) {
    return require(*error == std::get<std::string>(slow));
  }
  const auto& a = std::get<Dataset>(quick);
  const auto& b = std::get<Dataset>(slow);
  require(a.ids == b.ids && a.fields == b.fields && a.values == b.values);
  require(a.labels == b.labels && a.weights == b.weights && a.row_begin == b.row_begin);
}

inline void check_parse(std::string_view text, std::optional<Format> format) {
  for (const Labels labels : {Labels::kBinary, Labels::kReal, Labels::kOptional}) {
    check_parse(text, {.format = format, .labels = labels});
  }
}

}  // namespace motley::wide
