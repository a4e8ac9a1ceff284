// The rows of disk_run.h.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "comm/error.h"
#include "wide/cache.h"
#include "wide/disk_run.h"
#include "wide/train/settle.h"

namespace motley::wide {

DiskRows::DiskRows(const std::vector<std::string>& files, const std::string& folder,
                   const DiskOptions& options) {
  std::error_code error;
  if (!std::filesystem::create_directory(folder, error)) {
    errno = error ? error.value() : EEXIST;
    throw_errno("make the folder of parts " + folder);
  }
  folder_ = folder;
  try {
    keep(files, options);
    number(options);
  } catch (...) {
    std::filesystem::remove_all(folder_, error);
    throw;
  }
}

DiskRows::DiskRows(DiskRows&& other) noexcept
    : folder_(std::exchange(other.folder_, "")),
      rows_(other.rows_),
      parts_(other.parts_),
      label_sum_(other.label_sum_),
      recipe_(std::move(other.recipe_)),
      dictionary_(std::move(other.dictionary_)),
      fields_(std::move(other.fields_)) {}

DiskRows::~DiskRows() {
  std::error_code none;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, none);
}

std::string DiskRows::path(std::size_t part) const {
  return fmt::format("{}/{:06}.cache", folder_, part);
}

Dataset DiskRows::part(std::size_t i) const {
  return load_cache(path(i), {.labels = Labels::kReal, .fields = !fields_.empty()});
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
  for (std::size_t i = 0; i < parts_; ++i) {
    Dataset data = part(i);
    for (std::uint32_t& id : data.ids) id = dictionary_.slot(id);
    save_cache(rows_of(data, shuffled(data.rows(), options.seed + i)), path(i));
  }
}

}  // namespace motley::wide
