// wide/schema.h: what the columns of CSV are, and how cells become features.
//
//   click:label,id:skip,hour:hour,price:log,age:number,tags:list,w:weight,*:category
//
// Each is NAME:TYPE, found by name in the file's first line; where none of the names is there, the
// file has no header, and columns are taken in this order. `*` stands for all others; without it
// they are categories. The header itself may say NAME:TYPE instead. A column named label, click,
// target, clicked or y is the label if no other is.
//
//   label     0 and 1, or -1 and 1; for the squared loss any number
//   weight    how much the row counts, at least 0
//   skip      not looked at
//   category  one feature for each text that occurs; the empty text is one, too
//   list      categories between | or blanks; each counts once
//   number    one feature with the cell's value; an empty cell is none
//   log       the same with sign(x) log(1 + |x|)
//   bucket    x to the category floor(x) if |x| <= 2, else sign(x) (2 + floor(ln(|x|)^2)); the
//   empty
//             cell is a category
//   hour      of a time YYMMDDHH: the category HH; the empty cell is one, too
//
// A feature's field is its column. Its id is a hash of column name and text, of as many bits as
// asked for (32): features whose hashes are equal share weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wide/dataset.h"

namespace motley::wide {

enum class ColumnType : std::uint8_t {
  kLabel,
  kWeight,
  kSkip,
  kCategory,
  kList,
  kNumber,
  kLog,
  kBucket,
  kHour,
};
const char* name(ColumnType type) noexcept;
// Throws kInvalid, listing the names there are.
ColumnType column_type(std::string_view name);

struct SchemaColumn {
  std::string name;
  ColumnType type = ColumnType::kCategory;
  friend bool operator==(const SchemaColumn&, const SchemaColumn&) = default;
};

// Whether the first line names the columns; kAuto: where one of its cells is a name in the schema.
enum class HeaderLine : std::uint8_t { kAuto, kPresent, kAbsent };

// How text becomes rows: all that prediction needs to read as training did.
struct Schema {
  Format format = Format::kLibsvm;
  int bits = 0;        // of hashed ids; 0: libsvm's and libffm's are taken as they are
  char delimiter = 0;  // of cells; 0: tab, comma or semicolon, as in the first line
  HeaderLine header = HeaderLine::kAuto;
  std::vector<SchemaColumn> columns;  // in the order of fields
  friend bool operator==(const Schema&, const Schema&) = default;
};

// NAME:TYPE, …; a comma or backslash in a name is written \, or \\. Throws kInvalid.
std::vector<SchemaColumn> parse_columns(const std::string& text);
std::string to_text(const std::vector<SchemaColumn>& columns);

// One line, as it is in Dataset::recipe and in model files. from_recipe throws kInvalid.
std::string to_recipe(const Schema& schema);
Schema from_recipe(const std::string& recipe);

// label, I1 … I13 as buckets, C1 … C26.
Schema criteo_schema();
// click as label, no id, the hour of the day, all else as categories.
Schema avazu_schema();

}  // namespace motley::wide
