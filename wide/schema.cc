#include "wide/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "comm/error.h"

namespace motley::wide {
namespace {

struct NamedType {
  ColumnType type;
  const char* name;
};
constexpr NamedType kTypes[] = {{ColumnType::kLabel, "label"}, {ColumnType::kWeight, "weight"},
                                {ColumnType::kSkip, "skip"},   {ColumnType::kCategory, "category"},
                                {ColumnType::kList, "list"},   {ColumnType::kNumber, "number"},
                                {ColumnType::kLog, "log"},     {ColumnType::kBucket, "bucket"},
                                {ColumnType::kHour, "hour"}};

constexpr Format kFormats[] = {Format::kLibsvm, Format::kLibffm, Format::kCsv, Format::kCriteo,
                               Format::kAvazu};

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::kInvalid, what); }

std::string escaped(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (c == ',' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

SchemaColumn parse_column(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    fail(fmt::format("schema: \"{}\" is not NAME:TYPE, such as price:log", text));
  }
  return {text.substr(0, colon), column_type(std::string_view(text).substr(colon + 1))};
}

}  // namespace

const char* name(Format format) noexcept {
  switch (format) {
    case Format::kLibsvm:
      return "libsvm";
    case Format::kLibffm:
      return "libffm";
    case Format::kCsv:
      return "csv";
    case Format::kCriteo:
      return "criteo";
    case Format::kAvazu:
      return "avazu";
  }
  return "unknown";
}

const char* name(ColumnType type) noexcept {
  for (const NamedType& entry : kTypes) {
    if (entry.type == type) return entry.name;
  }
  return "unknown";
}

ColumnType column_type(std::string_view name) {
  std::string names;
  for (const NamedType& entry : kTypes) {
    if (name == entry.name) return entry.type;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  }
  fail(fmt::format("schema: there is no type \"{}\" of a column. Use one of {}", name, names));
}

std::vector<SchemaColumn> parse_columns(const std::string& text) {
  std::vector<SchemaColumn> columns;
  std::string part;
  const auto add = [&] {
    const std::size_t first = part.find_first_not_of(' ');
    const std::size_t last = part.find_last_not_of(' ');
    if (first == std::string::npos) fail("schema: a column between two commas is empty");
    columns.push_back(parse_column(part.substr(first, last - first + 1)));
    part.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      part += text[++i];
    } else if (text[i] == ',') {
      add();
    } else {
      part += text[i];
    }
  }
  if (!text.empty()) add();
  for (std::size_t i = 0; i < columns.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (columns[i].name != columns[j].name) continue;
      fail(fmt::format("schema: column \"{}\" is named twice", columns[i].name));
    }
  }
  return columns;
}

std::string to_text(const std::vector<SchemaColumn>& columns) {
  std::string out;
  for (const SchemaColumn& column : columns) {
    out += fmt::format("{}{}:{}", out.empty() ? "" : ",", escaped(column.name), name(column.type));
  }
  return out;
}

std::string to_recipe(const Schema& schema) {
  if (schema.columns.empty() && schema.bits == 0) return "";
  return fmt::format("{} {} {} {} {}", name(schema.format), schema.bits,
                     static_cast<int>(schema.delimiter), static_cast<int>(schema.header),
                     to_text(schema.columns));
}

Schema from_recipe(const std::string& recipe) {
  Schema schema;
  if (recipe.empty()) return schema;
  const std::size_t first = std::min(recipe.find(' '), recipe.size());
  const auto* const format = std::find_if(std::begin(kFormats), std::end(kFormats), [&](Format f) {
    return recipe.substr(0, first) == name(f);
  });
  int delimiter = 0;
  int header = 0;
  const char* const end = recipe.data() + recipe.size();
  const char* p = recipe.data() + first;
  const auto number = [&](int& out) {
    if (p == end || *p != ' ') return false;
    const auto [stop, error] = std::from_chars(p + 1, end, out);
    p = stop;
    return error == std::errc{};
  };
  const bool good = format != std::end(kFormats) && number(schema.bits) && number(delimiter) &&
                    number(header) && p != end && *p == ' ' && schema.bits >= 0 &&
                    schema.bits <= 32 && delimiter >= 0 && delimiter < 128 && header >= 0 &&
                    header <= 2;
  if (!good) fail(fmt::format("schema: \"{}\" does not say how rows are read", recipe));
  schema.format = *format;
  schema.delimiter = static_cast<char>(delimiter);
  schema.header = static_cast<HeaderLine>(header);
  schema.columns = parse_columns(std::string(p + 1, end));
  return schema;
}

Schema criteo_schema() {
  Schema schema{.format = Format::kCriteo,
                .bits = 32,
                .delimiter = '\t',
                .header = HeaderLine::kAbsent,
                .columns = {}};
  schema.columns.push_back({"label", ColumnType::kLabel});
  for (int i = 1; i <= 13; ++i) {
    schema.columns.push_back({fmt::format("I{}", i), ColumnType::kBucket});
  }
  for (int i = 1; i <= 26; ++i) {
    schema.columns.push_back({fmt::format("C{}", i), ColumnType::kCategory});
  }
  return schema;
}

Schema avazu_schema() {
  return {.format = Format::kAvazu,
          .bits = 32,
          .delimiter = ',',
          .header = HeaderLine::kPresent,
          .columns = {{"click", ColumnType::kLabel},
                      {"id", ColumnType::kSkip},
                      {"hour", ColumnType::kHour},
                      {"*", ColumnType::kCategory}}};
}

}  // namespace motley::wide
