// wide/row_parts.h: training rows of which each of several workers reads its part.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "wide/reader.h"

namespace motley::wide {

struct RowPart {
  Dataset rows;  // maybe none
  // Where labels are of two classes: which of them text has. Both would be an error of the whole.
  bool zero = false, minus_one = false;
};

class RowParts {
 public:
  // Rows that are in memory anyway.
  RowParts(Dataset rows);  // NOLINT(google-explicit-constructor): a data set is its own parts
  // Of files that can_be_read_in_parts(). Throws as read_part().
  RowParts(std::vector<std::string> paths, const ReadOptions& options);

  // How text becomes rows (schema.h), as the first lines say.
  const std::string& recipe() const noexcept { return recipe_; }
  // Part i of n, each row in one of them, in order; can be called again. Throws as read_part().
  RowPart part(int i, int n) const;
  // Throws what is wrong of the rows of files if it is something that no part can tell alone.
  void check_whole() const;

 private:
  std::shared_ptr<const Dataset> rows_;  // or null
  std::vector<std::string> paths_;
  ReadOptions options_;
  std::string recipe_;
};

}  // namespace motley::wide
