// plan_columns(): the first line of a file beside a schema.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "wide/read/columns.h"
#include "wide/read/number.h"

namespace motley::wide {
namespace {

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::kInvalid, what); }

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

const SchemaColumn* find(const std::vector<SchemaColumn>& columns, const std::string& name) {
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const SchemaColumn& column) { return column.name == name; });
  return found == columns.end() ? nullptr : &*found;
}

bool has_type(const std::vector<SchemaColumn>& columns, ColumnType type) {
  return std::any_of(columns.begin(), columns.end(),
                     [&](const SchemaColumn& column) { return column.type == type; });
}

char delimiter_of(std::string_view line) {
  for (const char c : {'\t', ',', ';'}) {
    if (line.find(c) != std::string_view::npos) return c;
  }
  return ',';
}

// What a header says of its columns: NAME or NAME:TYPE.
SchemaColumn header_column(const std::string& cell, ColumnType others) {
  const std::size_t colon = cell.rfind(':');
  if (colon == std::string::npos || colon == 0) return {cell, others};
  return {cell.substr(0, colon), column_type(std::string_view(cell).substr(colon + 1))};
}

bool is_number(const std::string& cell) {
  double value = 0;
  return !cell.empty() &&
         parse_number(cell.data(), cell.data() + cell.size(), value) == Number::kOk;
}

std::string names_of(const std::vector<SchemaColumn>& columns) {
  std::string names;
  for (const SchemaColumn& column : columns) names += (names.empty() ? "" : ", ") + column.name;
  return names;
}

// The column that is the label where nothing says so: one of which `said` says nothing.
void name_label(std::vector<SchemaColumn>& columns, const std::vector<SchemaColumn>& said,
                Labels labels) {
  if (has_type(columns, ColumnType::kLabel)) return;
  for (const char* usual : {"label", "click", "clicked", "target", "y"}) {
    for (SchemaColumn& column : columns) {
      if (lower(column.name) != usual || find(said, column.name) != nullptr) continue;
      column.type = ColumnType::kLabel;
      return;
    }
  }
  if (labels == Labels::kOptional) return;
  fail(fmt::format("no column is the label. Say which by --schema NAME:label; there are {}",
                   names_of(columns)));
}

// Columns of a file with a header, by their order in it.
std::vector<SchemaColumn> by_header(const Schema& schema, const std::vector<std::string>& header,
                                    Labels labels) {
  const SchemaColumn* const star = find(schema.columns, "*");
  const ColumnType others = star != nullptr ? star->type : ColumnType::kCategory;
  std::vector<SchemaColumn> columns;
  for (const std::string& cell : header) {
    SchemaColumn column = header_column(cell, others);
    if (const SchemaColumn* const said = find(schema.columns, column.name)) column = *said;
    if (find(columns, column.name) != nullptr) {
      fail(fmt::format("the header names column \"{}\" twice", column.name));
    }
    columns.push_back(std::move(column));
  }
  for (const SchemaColumn& said : schema.columns) {
    const bool needed = said.name != "*" && said.type != ColumnType::kSkip &&
                        !(labels == Labels::kOptional &&
                          (said.type == ColumnType::kLabel || said.type == ColumnType::kWeight));
    if (!needed || find(columns, said.name) != nullptr) continue;
    fail(fmt::format("the header has no column \"{}\" of the schema; it has {}", said.name,
                     names_of(columns)));
  }
  name_label(columns, schema.columns, labels);
  return columns;
}

// Columns of a file without, as the schema has them.
std::vector<SchemaColumn> by_place(const Schema& schema, const std::vector<std::string>& first,
                                   Labels labels) {
  std::vector<SchemaColumn> columns = schema.columns;
  std::erase_if(columns, [](const SchemaColumn& column) { return column.name == "*"; });
  if (columns.empty()) {
    fail(
        fmt::format("the first line does not name the columns (\"{}\" is a number). Add a header, "
                    "or name all {} columns by --schema",
                    first[0], first.size()));
  }
  if (labels == Labels::kOptional && first.size() < columns.size()) {
    std::erase_if(columns, [](const SchemaColumn& column) {
      return column.type == ColumnType::kLabel || column.type == ColumnType::kWeight;
    });
  }
  if (columns.size() != first.size()) {
    const std::string what = first.size() == 1 ? "1 cell" : fmt::format("{} cells", first.size());
    if (std::none_of(first.begin(), first.end(), is_number)) {
      fail(
          fmt::format("the first line, {}, names no column of the schema, which has {}. Correct "
                      "the names, or name all columns",
                      what, names_of(columns)));
    }
    fail(
        fmt::format("the first line has {}, but the schema names {} columns ({}), and a file "
                    "without a header needs all of them",
                    what, columns.size(), names_of(columns)));
  }
  if (labels != Labels::kOptional && !has_type(columns, ColumnType::kLabel)) {
    fail("no column of the schema is the label. Add NAME:label");
  }
  return columns;
}

// Whether the line is a row of libsvm or libffm: its first word with a colon ends with a number.
bool is_tokens(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || line.find(' ') > colon) return false;
  const std::string_view word = line.substr(colon, line.find(' ', colon) - colon);
  return is_number(std::string(word.substr(word.rfind(':') + 1)));
}

bool has_header(const Schema& schema, const std::vector<std::string>& first) {
  if (schema.header != HeaderLine::kAuto) return schema.header == HeaderLine::kPresent;
  const bool names = std::any_of(schema.columns.begin(), schema.columns.end(),
                                 [](const SchemaColumn& column) { return column.name != "*"; });
  if (!names) return std::none_of(first.begin(), first.end(), is_number);
  return std::any_of(first.begin(), first.end(), [&](const std::string& cell) {
    return find(schema.columns, cell) != nullptr ||
           find(schema.columns, cell.substr(0, cell.rfind(':'))) != nullptr;
  });
}

bool is_feature(ColumnType type) {
  return type != ColumnType::kLabel && type != ColumnType::kWeight && type != ColumnType::kSkip;
}

}  // namespace

std::vector<std::string> split_cells(std::string_view line, char delimiter) {
  std::vector<std::string> cells(1);
  bool quotes = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quotes && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += line[++i];
    } else if (c == '"' && (quotes || cells.back().empty())) {
      quotes = !quotes;
    } else if (c == delimiter && !quotes) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

ColumnPlan plan_columns(const Schema& schema, std::string_view first_line, Labels labels) {
  if (first_line.ends_with('\r')) first_line.remove_suffix(1);
  ColumnPlan plan{.schema = schema, .cells = {}};
  if (plan.schema.bits == 0) plan.schema.bits = 32;
  if (plan.schema.delimiter == 0) plan.schema.delimiter = delimiter_of(first_line);
  const std::vector<std::string> first = split_cells(first_line, plan.schema.delimiter);
  if (first.size() == 1 && is_tokens(first_line)) {
    fail(
        fmt::format("the first line is a row of libsvm or libffm (INDEX:VALUE), but rows of {} "
                    "are expected{}{}. Give such rows, or leave --schema and --format out",
                    name(schema.format), schema.columns.empty() ? "" : ", with the columns ",
                    names_of(schema.columns)));
  }
  plan.has_header = has_header(schema, first);
  plan.schema.header = plan.has_header ? HeaderLine::kPresent : HeaderLine::kAbsent;
  const std::vector<SchemaColumn> columns =
      plan.has_header ? by_header(schema, first, labels) : by_place(schema, first, labels);
  // Fields are numbered as the schema has its columns, which is as training did.
  std::vector<SchemaColumn>& known = plan.schema.columns;
  std::erase_if(known, [](const SchemaColumn& column) { return column.name == "*"; });
  plan.unlabelled = !plan.has_header && columns.size() < known.size();
  for (const SchemaColumn& column : columns) {
    if (column.type != ColumnType::kSkip && find(known, column.name) == nullptr) {
      known.push_back(column);
    }
  }
  for (const SchemaColumn& column : columns) {
    std::uint32_t field = 0;
    for (const SchemaColumn& other : known) {
      if (other.name == column.name) break;
      field += is_feature(other.type) ? 1 : 0;
    }
    plan.cells.push_back({.type = column.type,
                          .field = field,
                          .seed = hash_text(0, column.name),
                          .name = column.name});
  }
  known.push_back({"*", ColumnType::kSkip});
  return plan;
}

}  // namespace motley::wide
