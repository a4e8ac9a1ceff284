// The rows of disk_run.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/error.h"
#include "wide/cache.h"
#include "wide/disk_run.h"
#include "wide/file/memory_limit.h"
#include "wide/file/parts_folder.h"
#include "wide/file/random_reader.h"
#include "wide/read/pieces.h"
#include "wide/samples.h"
#include "wide/train/settle.h"

namespace motley::wide {
namespace {

constexpr double kBeside = 8 << 20;  // features, pieces of text, files' pages, what malloc keeps
constexpr double kSpare = 1.03;      // of memory that is made a little larger than it has to be

// In memory, `times` as many rows like these, with what is left over of large pages.
double bytes_of(const Dataset& data, double times) {
  constexpr double kPage = HugePages<float>::kPage;
  double sum = 0;
  const auto add = [&](const auto& column) {
    const double bytes = static_cast<double>(column.size() * sizeof column[0]) * times;
    sum += bytes < kPage ? bytes : std::ceil(bytes / kPage) * kPage;
  };
  add(data.row_begin);
  add(data.labels);
  add(data.weights);
  add(data.ids);
  add(data.values);
  add(data.fields);
  return sum;
}

}  // namespace

DiskRows::DiskRows(const std::vector<std::string>& files, const std::string& folder,
                   const DiskOptions& options)
    : folder_(std::make_unique<PartsFolder>(folder)),
      limit_(options.read.memory_limit_bytes != 0 ? options.read.memory_limit_bytes
                                                  : wide::memory_limit()) {
  check_first(files, options);
  keep(files, options);
  malloc_trim(0);  // what text needed is not needed again
  number(options);
  malloc_trim(0);
}

DiskRows::DiskRows(DiskRows&&) noexcept = default;
DiskRows::~DiskRows() = default;

std::string DiskRows::path(std::size_t part) const { return folder_->file(part); }

Dataset DiskRows::part(std::size_t i, Dataset room) const {
  return load_cache(
      path(i), {.labels = Labels::kReal, .memory_limit_bytes = limit_, .fields = !fields_.empty()},
      std::move(room));
}

std::uint64_t DiskRows::want(std::size_t i, std::uint64_t bytes) const {
  const int file = open(path(i).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw_errno("open " + path(i));
  posix_fadvise(file, 0, static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);  // nothing fails without
  close(file);
  return RandomReader(path(i)).size();
}

// The first rows say how large parts will be.
void DiskRows::check_first(const std::vector<std::string>& files,
                           const DiskOptions& options) const {
  if (!can_be_read_in_parts(files)) return;
  ReadOptions read = options.read;
  read.memory_limit_bytes = limit_;
  std::optional<Dataset> first;
  double bytes = 0, looked = 0;  // the latter of the files up to the first with rows
  for (auto file = files.begin(); file != files.end(); ++file) {
    const std::uint64_t size = RandomReader(*file).size();
    bytes += static_cast<double>(size);
    if (first) continue;
    looked += static_cast<double>(std::min<std::uint64_t>(size, Pieces::kBytes));
    first = RowStream({files.begin(), file + 1}, read).next(1);
  }
  if (!first) return;
  const auto known = static_cast<double>(first->rows());
  const double rows =
      std::min(static_cast<double>(options.rows_of_part), known * std::max(1.0, bytes / looked));
  Dataset kept = *first;
  const bool ones = std::ranges::all_of(kept.values, [](float x) { return x == 1; });
  if (ones) kept.values = {};
  // First as text says, then, as it is put in a new order, twice.
  const double times = kSpare * rows / known;
  check_room(fmt::format("train from disk: parts of {:.0f} rows", rows),
             std::max(bytes_of(*first, times), 2 * bytes_of(kept, times)) + kBeside, limit_,
             "Use smaller parts (--disk_rows), or more memory");
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
    malloc_trim(0);  // else what is free may be as large again
  }
  if (rows_ == 0) throw Error(ErrorCode::kInvalid, "train: the data set has no rows");
  dictionary_ = frequencies.dictionary();
}

void DiskRows::number(const DiskOptions& options) {
  Dataset data;
  for (std::size_t i = 0; i < parts_; ++i) {
    data = part(i, std::move(data));
    part_bytes_ = std::max(part_bytes_, static_cast<std::uint64_t>(bytes_of(data, kSpare)));
    for (std::uint32_t& id : data.ids) id = dictionary_.slot(id);
    distinct_ = distinct_ && is_distinct(data, dictionary_.size());
    save_cache(rows_of(data, shuffled(data.rows(), options.seed + i)), path(i));
    malloc_trim(0);
  }
}

}  // namespace motley::wide
