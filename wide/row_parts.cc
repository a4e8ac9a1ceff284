#include "wide/row_parts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "wide/read/input.h"

namespace motley::wide {
namespace {

constexpr std::uint64_t kBeginning = 1 << 16;  // bytes that say how text becomes rows

// Labels of two classes as the reader stores them; false where one is of none.
bool settle_labels(RowPart& part) {
  for (float& label : part.rows.labels) {
    part.zero = part.zero || label == 0;
    part.minus_one = part.minus_one || label == -1;
    if (label == -1) label = 0;
    if (label != 0 && label != 1) return false;
  }
  return true;
}

}  // namespace

RowParts::RowParts(Dataset rows)
    : rows_(std::make_shared<const Dataset>(std::move(rows))), recipe_(rows_->recipe) {}

RowParts::RowParts(std::vector<std::string> paths, const ReadOptions& options)
    : paths_(std::move(paths)), options_(options) {
  std::uint64_t bytes = 0;
  for (const std::string& path : paths_) bytes += Input(path).size_bytes();
  const auto parts = static_cast<int>(std::clamp<std::uint64_t>(bytes / kBeginning, 1, 1 << 20));
  recipe_ = part(0, parts).rows.recipe;
}

RowPart RowParts::part(int i, int n) const {
  RowPart part;
  if (rows_ != nullptr) {
    const auto at = [&](int k) {
      return rows_->rows() * static_cast<std::size_t>(k) / static_cast<std::size_t>(n);
    };
    std::vector<std::uint64_t> rows(at(i + 1) - at(i));
    std::iota(rows.begin(), rows.end(), at(i));
    part.rows = rows_of(*rows_, rows);
    return part;
  }
  ReadOptions as_they_are = options_;
  const bool binary = options_.labels == Labels::kBinary;
  if (binary) as_they_are.labels = Labels::kReal;
  part.rows = read_part(paths_, i, n, as_they_are);
  if (binary && !settle_labels(part)) read_files(paths_, options_);  // names the line
  return part;
}

void RowParts::check_whole() const {
  if (rows_ == nullptr) read_files(paths_, options_);
}

}  // namespace motley::wide
