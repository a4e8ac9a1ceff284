#include "wide/read/gatherer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "comm/error.h"
#include "wide/file/memory_limit.h"
#include "wide/option_error.h"
#include "wide/read/columns.h"
#include "wide/read/tokens.h"

namespace motley::wide {
namespace {

// Not for each of many files exactly, as all that is there is copied each time.
template <class Column>
void make_room(Column& column, double wanted) {
  const auto n = static_cast<std::size_t>(wanted);
  if (n > column.capacity()) column.reserve(std::max(n, column.capacity() / 2 * 3));
}

void check(const ReadOptions& options) {
  const auto require = [](bool holds, const char* option, int value, const char* range) {
    if (holds) return;
    throw OptionError("read", option, fmt::format("is {}, but must be {}", value, range));
  };
  require(options.bits >= 0 && options.bits <= 32, "bits", options.bits, "in [0, 32]");
  require(options.threads >= 1 && options.threads <= 1024, "threads", options.threads,
          "in [1, 1024]");
}

double bytes_of(double rows, double entries, double entry_bytes) {
  return rows * 12 + entries * entry_bytes;
}

// The format that the first line shows; libsvm stands for both kinds of tokens.
Format format_of_line(std::string_view line) {
  const auto tabs = std::count(line.begin(), line.end(), '\t');
  if (tabs >= 38 && line.find(':') == std::string_view::npos) return Format::kCriteo;
  if (line.starts_with("id,click,hour,") || line.starts_with("id,hour,")) return Format::kAvazu;
  if (line.find(',') != std::string_view::npos) return Format::kCsv;
  // Names between tabs or semicolons; a row would begin with a number.
  const bool parted = tabs > 0 || line.find(';') != std::string_view::npos;
  const bool names =
      !line.empty() && std::string_view("0123456789+-.").find(line[0]) == std::string_view::npos;
  if (parted && names && line.find_first_of("#:") == std::string_view::npos) return Format::kCsv;
  return Format::kLibsvm;
}

}  // namespace

Gatherer::Gatherer(const ReadOptions& options) : options_(options) { check(options); }

void Gatherer::fail(std::uint64_t line, const std::string& what) const {
  throw BadLine(ErrorCode::kInvalid, fmt::format("{}:{}: {}", name_, line, what));
}

std::string_view Gatherer::begin_file(const std::string& name, std::string_view text) {
  name_ = name;
  lines_ = zero_line_ = minus_one_line_ = 0;
  rows_before_ = data_.rows();
  entries_before_ = data_.entries();
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  if (text.starts_with("motleyWM")) fail(1, "is a model, not data");
  if (text.starts_with("motleyWC")) fail(1, "is a cache, which is read alone");
  std::size_t blank = 0;  // lines
  std::string_view rest = text;
  while (rest.starts_with('\n') || rest.starts_with("\r\n")) {
    rest.remove_prefix(rest.find('\n') + 1);
    ++blank;
  }
  const std::string_view line = rest.substr(0, rest.find('\n'));
  if (!format_known_ && parsers_.empty()) choose_format(line);
  if (schema_.format == Format::kLibsvm || schema_.format == Format::kLibffm) return text;
  if (rest.empty()) return rest;
  lines_ = blank;
  try {
    begin_columns(line);
  } catch (const Error& error) {
    fail(blank + 1, error.what());
  }
  if (schema_.header == HeaderLine::kPresent) {
    ++lines_;
    rest.remove_prefix(line.size() + 1);
  }
  return rest;
}

void Gatherer::choose_format(std::string_view first_line) {
  const Format format = options_.format.value_or(
      options_.columns.empty() ? format_of_line(first_line) : Format::kCsv);
  format_known_ = options_.format.has_value();
  if (format == Format::kCriteo) schema_ = criteo_schema();
  if (format == Format::kAvazu) schema_ = avazu_schema();
  schema_.format = format;
  if (!options_.columns.empty()) {
    schema_.columns = options_.columns;
    schema_.header = options_.header;
  }
  if (options_.delimiter != 0) schema_.delimiter = options_.delimiter;
  if (options_.bits != 0) schema_.bits = options_.bits;
  if (format == Format::kLibsvm || format == Format::kLibffm) {
    if (!options_.columns.empty())
      throw Error(ErrorCode::kInvalid, fmt::format("{}: --schema is of columns, of which {} has "
                                                   "none. Leave it out",
                                                   name_, name(format)));
    schema_.columns.clear();
    use_tokens(format);
  }
  data_.format = format;
}

void Gatherer::begin_columns(std::string_view first_line) {
  format_known_ = true;
  ColumnPlan plan = plan_columns(schema_, first_line, options_.labels);
  schema_ = plan.schema;
  if (plan.unlabelled) data_.unlabelled_cells = plan.cells.size();
  parsers_.push_back(std::make_unique<ColumnParser>(ColumnParser::Settings{
      .plan = std::move(plan), .labels = options_.labels, .names = options_.names}));
}

void Gatherer::use_tokens(Format format) {
  schema_.format = format;
  parsers_.push_back(std::make_unique<TokenParser>(TokenParser::Settings{.format = format,
                                                                         .labels = options_.labels,
                                                                         .bits = options_.bits,
                                                                         .names = options_.names}));
}

const TextParser& Gatherer::parser_for(std::string_view text) {
  if (parsers_.empty()) fail(1, "begins with too many blank lines");
  if (!format_known_) {
    if (const std::optional<Format> found = format_of_tokens(text)) {
      format_known_ = true;
      use_tokens(*found);
    }
  }
  return *parsers_.back();
}

void Gatherer::check_labels(const Rows& rows) {
  const auto note = [this](std::uint64_t& first, std::uint64_t line) {
    if (first == 0 && line != 0) first = lines_ + line;
  };
  note(zero_line_, rows.seen.zero);
  note(minus_one_line_, rows.seen.minus_one);
  if (zero_line_ == 0 || minus_one_line_ == 0) return;
  const bool zero_first = zero_line_ < minus_one_line_;
  fail(std::max(zero_line_, minus_one_line_),
       fmt::format("the label {} differs from the label {} on line {}. Labels are 0 and 1, or -1 "
                   "and 1, not both",
                   zero_first ? "-1" : "0", zero_first ? "0" : "-1",
                   std::min(zero_line_, minus_one_line_)));
}

void Gatherer::add(const TextParser& parser, const Rows& rows) {
  check_labels(rows);
  if (rows.bad_line != 0) fail(lines_ + rows.bad_line, rows.bad);
  lines_ += rows.lines;
  const bool fields = parser.has_fields() && options_.fields;
  const std::uint64_t before = data_.entries();
  check_memory(static_cast<double>(data_.rows() + rows.labels.size()),
               static_cast<double>(before + rows.entries), fields ? 12 : 8);
  const auto append = [](auto& to, const auto& from, std::size_t n) {
    to.insert(to.end(), from.begin(), from.begin() + static_cast<std::ptrdiff_t>(n));
  };
  append(data_.labels, rows.labels, rows.labels.size());
  append(data_.weights, rows.weights, rows.weights.size());
  append(data_.ids, rows.ids, rows.entries);
  append(data_.values, rows.values, rows.entries);
  if (fields) append(data_.fields, rows.fields, rows.entries);
  for (const std::uint64_t end : rows.row_end) data_.row_begin.push_back(before + end);
  for (const auto& [id, text] : rows.names) data_.names.try_emplace(id, text);
}

void Gatherer::check_memory(double rows, double entries, double entry_bytes) {
  constexpr double kLittle = 16 << 20;  // bytes, for which nobody asks the system what is left
  if (options_.memory_limit_bytes == 0 && bytes_of(rows, entries, entry_bytes) <= kLittle) return;
  limit();
  check_memory(name_, options_, rows, entries, entry_bytes);
}

std::uint64_t Gatherer::limit() {
  if (options_.memory_limit_bytes == 0) options_.memory_limit_bytes = memory_limit();
  return options_.memory_limit_bytes;
}

void Gatherer::check_memory(const std::string& name, const ReadOptions& options, double rows,
                            double entries, double entry_bytes) {
  const double bytes = bytes_of(rows, entries, entry_bytes);
  const auto limit = static_cast<double>(
      options.memory_limit_bytes != 0 ? options.memory_limit_bytes : memory_limit());
  if (bytes <= limit) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("{}: about {:.0f} rows with {:.0f} entries need {:.2f} GiB of memory, "
                          "but {:.2f} GiB is the limit. Use fewer rows, or a larger machine",
                          name, rows, entries, bytes / (1 << 30), limit / (1 << 30)));
}

void Gatherer::reserve_rows(std::size_t rows) {
  constexpr double kMost = 1 << 26;  // entries; what is larger grows as it comes
  const double scale = static_cast<double>(rows) / static_cast<double>(data_.rows()) * 1.02;
  const double entries = static_cast<double>(data_.entries()) * scale;
  if (scale < 1 || entries > kMost) return;
  data_.labels.reserve(static_cast<std::size_t>(static_cast<double>(data_.rows()) * scale));
  data_.row_begin.reserve(data_.labels.capacity() + 1);
  for (auto* column : {&data_.ids, &data_.fields})
    if (!column->empty()) column->reserve(static_cast<std::size_t>(entries));
  data_.values.reserve(static_cast<std::size_t>(entries));
}

void Gatherer::reserve(std::uint64_t parsed, std::uint64_t total, SizeOfText size) {
  if (total <= parsed || parsed == 0) return;
  const bool fields = !data_.fields.empty();
  const double margin = size == SizeOfText::kGuessed ? 1.2 : 1.02;
  const double scale = margin * static_cast<double>(total) / static_cast<double>(parsed);
  const auto scaled = [&](std::size_t before, std::size_t all) {
    return static_cast<double>(before) + static_cast<double>(all - before) * scale + 1;
  };
  const double rows = scaled(rows_before_, data_.rows());
  const double entries = scaled(entries_before_, data_.entries());
  if (size == SizeOfText::kKnown) {
    check_memory(rows, entries, fields ? 12 : 8);
  } else if (2 * bytes_of(rows, entries, 12) > static_cast<double>(limit())) {
    return;
  }
  make_room(data_.labels, rows);
  make_room(data_.row_begin, rows + 1);
  make_room(data_.ids, entries);
  make_room(data_.values, entries);
  if (fields) make_room(data_.fields, entries);
}

Dataset Gatherer::take() {
  if (data_.rows() == 0) throw Error(ErrorCode::kInvalid, name_ + ": holds no rows");
  return take_any();
}

Dataset Gatherer::take_any() {
  if (!data_.weights.empty() && data_.weights.size() != data_.rows()) {
    throw Error(ErrorCode::kInvalid, name_ + ": has weights, but another file has none");
  }
  data_.format = schema_.format;
  data_.recipe = to_recipe(schema_);
  return std::exchange(data_, Dataset{});
}

}  // namespace motley::wide
