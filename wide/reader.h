// wide/reader.h: libsvm and libffm text to a Dataset.
//
//   Dataset train = read_file("train.txt");
//   Dataset sample = parse_text("1 3:0.5 9:1\n-1 4:2\n", "sample");
//
// Strict: what has no documented meaning is an Error (kInvalid) that names file, line, column and
// token. What each input means:
//   blank line, `# comment`      skipped; a comment may also follow a row
//   label without features       a row with no features: its score is the bias
//   CRLF, blanks at the end, no newline at the end, byte order mark     accepted
//   index 0, indices in any order       accepted: ids are names, order has no meaning
//   index above 2^32 - 1, negative, missing or not a whole number       error
//   the same index twice in a row (libffm: the same field and index)    error
//   value nan, inf, missing, or beyond a float's 3.4e38                 error; 1e-50 is 0
//   tokens of the other format in one file; NUL bytes; gzip             error
//   a file without rows                 error
// A line may have any length.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "wide/dataset.h"

namespace motley::wide {

enum class Labels : std::uint8_t {
  kBinary,    // 0 and 1, or -1 and 1 (stored as 0 and 1); both 0 and -1 in one file: error
  kReal,      // any finite number, stored as it is
  kOptional,  // for prediction: any finite number or none at all, stored as 0
};

struct ReadOptions {
  std::optional<Format> format;          // that of the first row with a feature, if empty
  Labels labels = Labels::kBinary;       // what a label may be
  std::uint64_t memory_limit_bytes = 0;  // refuse larger data sets; 0: this machine's memory
};

// Reads a file or pipe. About 12 bytes a row and 8 (libsvm) or 12 (libffm) an entry, estimated
// from the first rows before they are allocated. Throws kIo if the file cannot be read, kInvalid
// for its contents or its size.
Dataset read_file(const std::string& path, const ReadOptions& options = {});

// The same from memory; `source_name` stands for the file in messages.
Dataset parse_text(std::string_view text, const std::string& source_name,
                   const ReadOptions& options = {});

}  // namespace motley::wide
