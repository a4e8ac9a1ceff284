// wide/reader.h: libsvm, libffm, CSV, Criteo and Avazu text to a Dataset.
//
//   Dataset train = read_file("train.txt");
//   Dataset days = read_files({"day_0.gz", "day_1.gz"}, {.threads = 8});
//   Dataset sample = parse_text("1 3:0.5 9:1\n-1 4:2\n", "sample");
//
// Files may be compressed with gzip or zstd; "-" is standard input. Strict: what has no documented
// meaning is an Error (kInvalid) that names file, line, column and token. What each input means:
//   blank line                   skipped
//   CRLF, no newline at the end, byte order mark                        accepted
//   NUL bytes; a file without rows                                      error
//   value or label nan, inf, or beyond a float's 3.4e38                 error; 1e-50 is 0
// libsvm and libffm:
//   `# comment`                  skipped; a comment may also follow a row
//   label without features       a row with no features: its score is the bias
//   index 0, indices in any order       accepted: ids are names, order has no meaning
//   index above 2^32 - 1, negative, missing or not a whole number       error; with `bits` any text
//   the same index twice in a row (libffm: the same field and index)    error; with `bits` added up
//   tokens of the other format in one file                              error
// Columns (schema.h says how cells become features):
//   "cells in quotes", with "" for a quote      accepted, but not with a newline inside
//   more or fewer cells than columns            error
// A line may have any length.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wide/dataset.h"
#include "wide/schema.h"

namespace motley::wide {

enum class Labels : std::uint8_t {
  kBinary,    // 0 and 1, or -1 and 1 (stored as 0 and 1); both 0 and -1 in one file: error
  kReal,      // any finite number, stored as it is
  kOptional,  // for prediction: any finite number or none at all, stored as 0
};

struct ReadOptions {
  // Empty: libffm or libsvm by the first row with a feature; Criteo, Avazu or CSV if the first line
  // has 39 or more tabs, that header, or a comma.
  std::optional<Format> format;
  Labels labels = Labels::kBinary;       // what a label may be
  std::uint64_t memory_limit_bytes = 0;  // refuse larger data sets; 0: what this process may use
  int threads = 1;                       // that parse; the rows are the same
  int bits = 0;  // of hashed ids, up to 32; 0: columns 32, libsvm and libffm as they are
  std::vector<SchemaColumn> columns;      // of CSV
  char delimiter = 0;                     // of CSV; 0: found out
  HeaderLine header = HeaderLine::kAuto;  // of CSV
  bool names = false;                     // fill Dataset::names
  bool fields = true;  // fill Dataset::fields; false where no model looks at them (has_fields())
};

// Reads as the text of a data set with this recipe was read.
ReadOptions alike(const std::string& recipe, ReadOptions options);

// Reads files, pipes, or standard input ("-"). About 12 bytes a row and 8 (without fields) or 12 an
// entry, estimated from the first rows before they are allocated. Throws kIo if a file cannot be
// read, kInvalid for its contents or its size.
Dataset read_file(const std::string& path, const ReadOptions& options = {});
// One data set of all, in this order. All have the same format, and the same columns by name.
Dataset read_files(const std::vector<std::string>& paths, const ReadOptions& options = {});

// Part `part`, from 0, of `parts` of the same rows, for readers side by side: those of lines that
// begin in one of as many equal ranges of the files' bytes, each row in one part, and maybe none.
// Reads the range, and where files begin, up to what shows the format. Throws as read_files(),
// which it calls for the line where a part is bad; but what two parts contradict each other in,
// only read_files() finds out.
Dataset read_part(const std::vector<std::string>& paths, int part, int parts,
                  const ReadOptions& options = {});
// Whether they are all plain files, neither packed nor empty.
bool can_be_read_in_parts(const std::vector<std::string>& paths);

// The same rows part by part, for data that does not end or does not fit into memory:
//   for (RowStream stream({"-"}); const auto part = stream.next(100'000);) …
class RowStream {
 public:
  explicit RowStream(std::vector<std::string> paths, const ReadOptions& options = {});
  ~RowStream();
  // At least that many rows, some more, or what is left; nothing at the end. Throws as
  // read_files().
  std::optional<Dataset> next(std::size_t rows);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same from memory; `source_name` stands for the file in messages.
Dataset parse_text(std::string_view text, const std::string& source_name,
                   const ReadOptions& options = {});

// A weight for each row of `data`, one number a line. Throws kInvalid, naming the line, for what is
// no weight, and where there are more or fewer than rows.
void read_weights(const std::string& path, Dataset& data);

}  // namespace motley::wide
