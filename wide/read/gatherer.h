// wide/read/gatherer.h: rows of pieces of files to one data set: formats, labels, limits of memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/error.h"
#include "wide/read/rows.h"
#include "wide/reader.h"

namespace motley::wide {

// kInvalid: a line of a file is bad.
class BadLine : public Error {
 public:
  using Error::Error;
};

// Rows of files, one after the other, as a data set.
class Gatherer {
 public:
  // Throws kInvalid for options out of range.
  explicit Gatherer(const ReadOptions& options);

  // A file's first piece: finds out how to read it. Returns the piece without what is no row.
  std::string_view begin_file(const std::string& name, std::string_view text);
  // The parser for a piece. Pieces are shown in order, but may be before others have been added.
  const TextParser& parser_for(std::string_view text);
  // The rows that `parser` made of a file's next piece. Throws where they are bad.
  void add(const TextParser& parser, const Rows& rows);
  // Makes room, after the first `parsed` of `total` bytes of a file. A total that is known to
  // exceed the limit is refused; one that is guessed gets no room then, and grows as it comes.
  enum class SizeOfText { kKnown, kGuessed };
  void reserve(std::uint64_t parsed, std::uint64_t total, SizeOfText size);
  // Makes room for that many rows, which are like those that there are.
  void reserve_rows(std::size_t rows);
  std::size_t rows() const noexcept { return data_.rows(); }  // not yet taken
  // The rows so far, of which there is one; more may be added.
  Dataset take();
  // The same, though there be none.
  Dataset take_any();
  // Throws kInvalid where that many rows of `name` exceed the limit.
  static void check_memory(const std::string& name, const ReadOptions& options, double rows,
                           double entries, double entry_bytes);
  // Whether rows have shown it, or options, or columns.
  bool knows_format() const noexcept { return format_known_; }

 private:
  void check_memory(double rows, double entries, double entry_bytes);
  std::uint64_t limit();  // of memory, in bytes
  [[noreturn]] void fail(std::uint64_t line, const std::string& what) const;
  void choose_format(std::string_view first_line);
  void begin_columns(std::string_view first_line);
  void use_tokens(Format format);
  void check_labels(const Rows& rows);

  ReadOptions options_;
  Dataset data_;
  std::string name_;                                  // of the file
  std::vector<std::unique_ptr<TextParser>> parsers_;  // the last is in use
  bool format_known_ = false;
  Schema schema_;
  std::size_t rows_before_ = 0;       // of other files
  std::size_t entries_before_ = 0;    // of theirs
  std::uint64_t lines_ = 0;           // of the file, that were added
  std::uint64_t zero_line_ = 0;       // where the label 0 was first seen in it; 0: nowhere
  std::uint64_t minus_one_line_ = 0;  // and -1
};

}  // namespace motley::wide
