#include "wide/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>

#include "comm/error.h"
#include "wide/file/checksum.h"
#include "wide/file/random_reader.h"
#include "wide/file/whole_file.h"
#include "wide/kernel/team.h"
#include "wide/read/gatherer.h"

namespace motley::wide {
namespace {

static_assert(std::endian::native == std::endian::little, "caches are written as memory is");

constexpr char kMagic[8] = {'m', 'o', 't', 'l', 'e', 'y', 'W', 'C'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kPiece = std::size_t{1} << 20;

// The file: this header, the recipe, the columns that are not left out (row_begin, labels, weights,
// ids, values, fields) one after the other, a checksum for each piece of them, a checksum of
// header, recipe and these checksums.
struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t format;
  std::uint64_t source;
  std::uint64_t rows;
  std::uint64_t entries;
  std::uint64_t row_length;  // of every row; 0: row_begin is in the file
  std::uint32_t has_weights;
  std::uint32_t has_fields;  // 1: all of them; 2: those of the first row, which every row has
  std::uint32_t has_values;  // 0: all are 1
  std::uint32_t recipe_bytes;
};
static_assert(sizeof(Header) == 64, "no padding in the file");

// A part of a column, as a range of bytes.
struct Piece {
  void* data;
  std::size_t bytes;
  std::uint64_t offset;  // in the file
};

// The columns of `data`, which have their sizes, in the order and pieces of the file.
std::vector<Piece> pieces_of(Dataset& data, const Header& header) {
  std::vector<Piece> pieces;
  std::uint64_t offset = sizeof header + header.recipe_bytes;
  const auto add = [&](auto& column, std::size_t n) {
    auto* const begin = reinterpret_cast<char*>(column.data());
    const std::size_t bytes = n * sizeof(column[0]);
    for (std::size_t at = 0; at < bytes; at += kPiece) {
      const std::size_t size = std::min(kPiece, bytes - at);
      pieces.push_back({begin + at, size, offset});
      offset += size;
    }
  };
  if (header.row_length == 0) add(data.row_begin, data.row_begin.size());
  add(data.labels, data.labels.size());
  add(data.weights, data.weights.size());
  add(data.ids, data.ids.size());
  if (header.has_values != 0) add(data.values, data.values.size());
  if (header.has_fields == 1) add(data.fields, data.fields.size());
  if (header.has_fields == 2) add(data.fields, header.row_length);
  return pieces;
}

Header header_of(const Dataset& data, std::uint64_t source) {
  Header header{.magic = {},
                .version = kVersion,
                .format = static_cast<std::uint32_t>(data.format),
                .source = source,
                .rows = data.rows(),
                .entries = data.entries(),
                .row_length = 0,
                .has_weights = data.weights.empty() ? 0u : 1u,
                .has_fields = data.fields.empty() ? 0u : 1u,
                .has_values = 0,
                .recipe_bytes = static_cast<std::uint32_t>(data.recipe.size())};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  for (const float value : data.values) header.has_values |= value == 1 ? 0u : 1u;
  const std::uint64_t length = data.rows() > 0 ? data.row_begin[1] : 0;
  bool even = length > 0;
  for (std::size_t r = 0; r < data.rows() && even; ++r) {
    even = data.row_begin[r + 1] - data.row_begin[r] == length;
  }
  if (!even) return header;
  header.row_length = length;
  bool alike = header.has_fields != 0;
  for (std::size_t e = length; e < data.fields.size() && alike; ++e) {
    alike = data.fields[e] == data.fields[e - length];
  }
  if (alike) header.has_fields = 2;
  return header;
}

std::uint64_t checksum_of_start(const Header& header, const std::string& recipe,
                                const std::vector<std::uint64_t>& sums) {
  std::string start(reinterpret_cast<const char*>(&header), sizeof header);
  start += recipe;
  start.append(reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof sums[0]);
  return checksum(start.data(), start.size());
}

// A cache open for reading.
class CacheFile {
 public:
  explicit CacheFile(const std::string& path) : file_(path) {}

  std::uint64_t size() const { return file_.size(); }
  void get(void* out, std::size_t n, std::uint64_t offset) const {
    if (file_.get(out, n, offset) < n) fail("ends too early: it was truncated");
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw BadCache(ErrorCode::kInvalid, fmt::format("{}: {}", file_.path(), what));
  }

 private:
  RandomReader file_;
};

Header read_header(const CacheFile& file) {
  Header header{};
  const std::uint64_t size = file.size();
  if (size < sizeof header) file.fail("is no cache: it is too short");
  file.get(&header, sizeof header, 0);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    file.fail("is no cache: its first bytes differ");
  }
  if (header.version != kVersion) {
    file.fail(
        fmt::format("is a cache of version {}, but this program reads version {}. Make it anew",
                    header.version, kVersion));
  }
  // Before anything is allocated; no product below overflows. Every row has a label and every entry
  // an id in the file.
  const bool possible =
      header.rows >= 1 && header.rows <= size / 4 && header.entries <= size / 4 &&
      header.recipe_bytes <= size && header.row_length <= header.entries &&
      header.has_weights <= 1 && header.has_values <= 1 && header.has_fields <= 2 &&
      header.format <= 4 &&
      (header.row_length == 0 ||
       (header.entries % header.rows == 0 && header.entries / header.rows == header.row_length)) &&
      (header.has_fields != 2 || header.row_length > 0);
  if (!possible) {
    file.fail(
        fmt::format("is truncated or damaged: it holds {} bytes, but names {} rows with {} "
                    "entries",
                    size, header.rows, header.entries));
  }
  return header;
}

// Unset elements; where it lacks room, memory for them and a few more, and no copy of the old ones.
template <class T>
void resize_unset(Column<T>& column, std::size_t n) {
  if (column.capacity() < n) {
    column = Column<T>();
    column.reserve(n + n / 32);
  }
  column.resize(n);
}

// Columns of their sizes, unset, in the memory of `data`.
Dataset sized(const Header& header, Dataset data) {
  data.format = static_cast<Format>(header.format);
  resize_unset(data.row_begin, header.rows + 1);
  resize_unset(data.labels, header.rows);
  resize_unset(data.weights, header.has_weights != 0 ? header.rows : 0);
  resize_unset(data.ids, header.entries);
  resize_unset(data.values, header.has_values != 0 ? header.entries : 0);
  resize_unset(data.fields, header.has_fields != 0 ? header.entries : 0);
  return data;
}

// Their pieces are the last; their memory has not been touched.
void leave_out_fields(Dataset& data, Header header, std::vector<Piece>& pieces) {
  header.has_fields = 0;
  pieces.resize(pieces_of(data, header).size());
  data.fields = {};
}

// Pieces whose turn it is go to threads.
void read_pieces(const CacheFile& file, const std::vector<Piece>& pieces,
                 const std::vector<std::uint64_t>& sums, int threads) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  Team(threads).run([&](int) {
    for (std::size_t i = next++; i < pieces.size(); i = next++) {
      try {
        file.get(pieces[i].data, pieces[i].bytes, pieces[i].offset);
        if (checksum(pieces[i].data, pieces[i].bytes) == sums[i]) continue;
        file.fail(fmt::format("is damaged near byte {}: its checksum differs", pieces[i].offset));
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    }
  });
  if (failure) std::rethrow_exception(failure);
}

// Each row's fields become those of the first, which are there.
void repeat_fields(Column<std::uint32_t>& fields, std::size_t row, int threads) {
  const std::size_t rows = fields.size() / row;
  Team(threads).run([&](int thread) {
    const auto share = [&](int t) {
      return rows * static_cast<std::size_t>(t) / static_cast<std::size_t>(threads);
    };
    for (std::size_t r = std::max<std::size_t>(share(thread), 1); r < share(thread + 1); ++r) {
      std::memcpy(&fields[r * row], fields.data(), row * sizeof fields[0]);
    }
  });
}

// Sets what the file leaves out, and checks what a sum cannot.
void complete(Dataset& data, const Header& header, const CacheFile& file, int threads) {
  if (header.has_fields == 2 && !data.fields.empty())
    repeat_fields(data.fields, header.row_length, threads);
  if (header.row_length > 0) {
    for (std::size_t r = 0; r <= header.rows; ++r) data.row_begin[r] = r * header.row_length;
  }
  const bool rises = std::is_sorted(data.row_begin.begin(), data.row_begin.end());
  if (!rises || data.row_begin.front() != 0 || data.row_begin.back() != header.entries) {
    file.fail("is damaged: its rows do not follow one another");
  }
}

// Labels as the reader would have made them of text.
void settle_labels(Dataset& data, Labels labels, const CacheFile& file) {
  if (labels == Labels::kOptional) std::fill(data.labels.begin(), data.labels.end(), 0.0f);
  if (labels != Labels::kBinary) return;
  bool zero = false;
  bool minus_one = false;
  for (std::size_t r = 0; r < data.rows(); ++r) {
    float& label = data.labels[r];
    zero = zero || label == 0;
    minus_one = minus_one || label == -1;
    if (label == -1) label = 0;
    if ((label == 0 || label == 1) && !(zero && minus_one)) continue;
    file.fail(fmt::format("row {} has the label {}{}. Labels are 0 and 1, or -1 and 1", r + 1,
                          label, zero && minus_one ? ", and there are both 0 and -1" : ""));
  }
}

}  // namespace

void save_cache(const Dataset& data, const std::string& path, std::uint64_t source) {
  const Header header = header_of(data, source);
  WholeFile file(path);
  file.put(&header, sizeof header);
  file.put(data.recipe);
  std::vector<std::uint64_t> sums;
  // Only read from here.
  for (const Piece& piece : pieces_of(const_cast<Dataset&>(data), header)) {
    file.put(piece.data, piece.bytes);
    sums.push_back(checksum(piece.data, piece.bytes));
  }
  file.put(sums.data(), sums.size() * sizeof sums[0]);
  const std::uint64_t last = checksum_of_start(header, data.recipe, sums);
  file.put(&last, sizeof last);
  file.commit();
}

bool is_cache(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  const OpenFile file(std::fopen(path.c_str(), "rb"));
  char start[sizeof kMagic];
  return file != nullptr && std::fread(start, 1, sizeof start, file.get()) == sizeof start &&
         std::memcmp(start, kMagic, sizeof start) == 0;
}

std::optional<std::uint64_t> source_of_cache(const std::string& path) {
  if (!is_cache(path)) return std::nullopt;
  const CacheFile file(path);
  Header header{};
  if (file.size() < sizeof header) return std::nullopt;
  file.get(&header, sizeof header, 0);
  if (header.version != kVersion) return std::nullopt;
  return header.source;
}

Dataset load_cache(const std::string& path, const ReadOptions& options, Dataset room,
                   std::uint64_t* source) {
  const CacheFile file(path);
  const Header header = read_header(file);
  Gatherer::check_memory(path, options, static_cast<double>(header.rows),
                         static_cast<double>(header.entries),
                         header.has_fields != 0 && options.fields ? 12 : 8);
  std::string recipe(header.recipe_bytes, '\0');
  file.get(recipe.data(), recipe.size(), sizeof header);
  Dataset data = sized(header, std::move(room));
  std::vector<Piece> pieces = pieces_of(data, header);
  std::vector<std::uint64_t> sums(pieces.size());
  std::uint64_t at = sizeof header + header.recipe_bytes;
  if (!pieces.empty()) at = pieces.back().offset + pieces.back().bytes;
  std::uint64_t last = 0;
  const std::uint64_t needed = at + sums.size() * sizeof sums[0] + sizeof last;
  if (needed != file.size()) {
    file.fail(fmt::format("is truncated or damaged: it holds {} bytes instead of {}", file.size(),
                          needed));
  }
  file.get(sums.data(), sums.size() * sizeof sums[0], at);
  file.get(&last, sizeof last, needed - sizeof last);
  if (last != checksum_of_start(header, recipe, sums)) {
    file.fail("is damaged: the checksum of its header differs");
  }
  if (!options.fields) leave_out_fields(data, header, pieces);
  read_pieces(file, pieces, sums, options.threads);
  complete(data, header, file, options.threads);
  settle_labels(data, options.labels, file);
  data.recipe = std::move(recipe);
  from_recipe(data.recipe);  // throws where it is none
  if (source != nullptr) *source = header.source;
  return data;
}

}  // namespace motley::wide
