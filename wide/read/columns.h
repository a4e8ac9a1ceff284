// wide/read/columns.h: CSV and the like to rows, by a schema.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wide/read/buckets.h"
#include "wide/read/label.h"
#include "wide/read/rows.h"
#include "wide/reader.h"

namespace motley::wide {

// Cells of a file as a schema takes them.
struct ColumnPlan {
  struct Cell {
    ColumnType type = ColumnType::kSkip;
    std::uint32_t field = 0;  // of the model
    std::uint64_t seed = 0;   // of hashes
    std::string name;
  };
  Schema schema;            // with every column of the file that is used, and `*:skip`
  std::vector<Cell> cells;  // of a line, in its order
  bool has_header = false;  // the first line names columns and is no row
  bool unlabelled = false;  // cells are too few for label and weight, which nothing else says
};

// The plan for a file that begins with `first_line`. Throws kInvalid where the line does not fit to
// `schema`, or says no label though `labels` wants one.
ColumnPlan plan_columns(const Schema& schema, std::string_view first_line, Labels labels);

// The cells of a line, without quotes.
std::vector<std::string> split_cells(std::string_view line, char delimiter);

class ColumnParser final : public TextParser {
 public:
  struct Settings {
    ColumnPlan plan;
    Labels labels = Labels::kBinary;
    bool names = false;
  };
  explicit ColumnParser(Settings settings);

  bool has_fields() const override { return true; }
  void parse(std::string_view text, Rows& out) const override;

 private:
  const char* add_row(const char* p, Rows& out) const;
  const char* add_plain_cells(const char* p, std::size_t& i, Rows& out) const;
  const char* add_plain_label(const char* p, std::size_t& i, Rows& out) const;
  const char* add_plain_categories(const char* p, std::size_t& i, Rows& out) const;
  const char* add_plain_buckets(const char* p, std::size_t& i, Rows& out) const;
  void add_cell(const ColumnPlan::Cell& cell, const Place& place, Rows& out) const;
  void add_list(const ColumnPlan::Cell& cell, std::string_view text, Rows& out) const;
  void add_number(const ColumnPlan::Cell& cell, const Place& place, Rows& out) const;
  void add(const ColumnPlan::Cell& cell, std::uint64_t hash, std::string_view shown, float value,
           Rows& out) const;
  [[noreturn]] void fail_of_cells(std::size_t found) const;

  // What is behind cell i of a line.
  char end_of_cell(std::size_t i) const {
    return i + 1 == settings_.plan.cells.size() ? '\n' : settings_.plan.schema.delimiter;
  }

  Settings settings_;
  const WholeBuckets& buckets_ = WholeBuckets::table();
  bool has_label_ = false;
  bool has_weight_ = false;
};

}  // namespace motley::wide
