// The rows of disk_run.h.
#include <malloc.h>

#include <algorithm>
#include <utility>

#include "comm/error.h"
#include "wide/cache.h"
#include "wide/disk_run.h"
#include "wide/file/parts_folder.h"
#include "wide/samples.h"
#include "wide/train/settle.h"

namespace motley::wide {

DiskRows::DiskRows(const std::vector<std::string>& files, const std::string& folder,
                   const DiskOptions& options)
    : folder_(std::make_unique<PartsFolder>(folder)) {
  keep(files, options);
  malloc_trim(0);  // what text needed is not needed again
  number(options);
  malloc_trim(0);
}

DiskRows::DiskRows(DiskRows&&) noexcept = default;
DiskRows::~DiskRows() = default;

std::string DiskRows::path(std::size_t part) const { return folder_->file(part); }

Dataset DiskRows::part(std::size_t i, Dataset room) const {
  return load_cache(path(i), {.labels = Labels::kReal, .fields = !fields_.empty()},
                    std::move(room));
}

void DiskRows::keep(const std::vector<std::string>& files, const DiskOptions& options) {
  Frequencies frequencies;
  RowStream stream(files, options.read);
  while (const std::optional<Dataset> part = stream.next(options.rows_of_part)) {
    frequencies.add(part->ids);
    for (const float label : part->labels) label_sum_ += static_cast<double>(label);
    std::vector<std::uint32_t> fields(part->fields.begin(), part->fields.end());
    fields.insert(fields.end(), fields_.begin(), fields_.end());
    std::sort(fields.begin(), fields.end());
    fields.erase(std::unique(fields.begin(), fields.end()), fields.end());
    fields_ = std::move(fields);
    rows_ += part->rows();
    recipe_ = part->recipe;
    save_cache(*part, path(parts_++));
  }
  if (rows_ == 0) throw Error(ErrorCode::kInvalid, "train: the data set has no rows");
  dictionary_ = frequencies.dictionary();
}

void DiskRows::number(const DiskOptions& options) {
  Dataset data;
  for (std::size_t i = 0; i < parts_; ++i) {
    data = part(i, std::move(data));
    for (std::uint32_t& id : data.ids) id = dictionary_.slot(id);
    distinct_ = distinct_ && is_distinct(data, dictionary_.size());
    save_cache(rows_of(data, shuffled(data.rows(), options.seed + i)), path(i));
  }
}

}  // namespace motley::wide
