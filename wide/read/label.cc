#include "wide/read/label.h"

#include <fmt/format.h>

#include <cfloat>

#include "wide/read/number.h"

namespace motley::wide {

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out + (text.size() > kShown ? "…\"" : "\"");
}

Error bad_token(const Place& place, const std::string& what) {
  return Error(ErrorCode::kInvalid,
               fmt::format("{} at column {} {}", quoted(place.shown), place.column, what));
}

float float_of(std::string_view token, const Place& place, const char* what) {
  double value = 0;
  const Number result = token.empty()
                            ? Number::kMalformed
                            : parse_number(token.data(), token.data() + token.size(), value);
  if (result == Number::kMalformed) {
    throw bad_token(place, fmt::format("needs a number as its {}", what));
  }
  if (result == Number::kNotFinite || std::abs(value) > FLT_MAX) {
    throw bad_token(place, fmt::format("has a {} that is not finite or exceeds 3.4e38", what));
  }
  return static_cast<float>(value);
}

float label_of(std::string_view token, Labels labels, std::uint64_t line, std::size_t column,
               Rows::Seen& seen) {
  const Place place{token, column};
  const float label = float_of(token, place, "label");
  if (labels == Labels::kOptional) return 0;
  if (labels == Labels::kReal || label == 1) return label;
  if (label != 0 && label != -1) {
    throw bad_token(place, "is no label of two classes. Labels are 0 and 1, or -1 and 1");
  }
  std::uint64_t& first = label == 0 ? seen.zero : seen.minus_one;
  if (first == 0) first = line;
  return 0;
}

}  // namespace motley::wide
