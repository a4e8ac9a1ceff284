// wide/read/label.h: labels and other single numbers of rows, as text.
#pragma once

#include <string_view>

#include "comm/error.h"
#include "wide/read/rows.h"
#include "wide/reader.h"

namespace motley::wide {

// What a message shows: a token and its column, from 1, in its line.
struct Place {
  std::string_view shown;
  std::size_t column = 0;
};
// `token` as a float. Throws kInvalid, naming the place, but not file and line.
float float_of(std::string_view token, const Place& place, const char* what);

// The label that `token` is, as it is stored. Notes the line of the first 0 and -1.
float label_of(std::string_view token, Labels labels, std::uint64_t line, std::size_t column,
               Rows::Seen& seen);

// kInvalid: "token" at column n `what`.
Error bad_token(const Place& place, const std::string& what);

}  // namespace motley::wide
