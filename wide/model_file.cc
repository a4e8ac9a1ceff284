// Model::save and Model::load. The file, little-endian:
//   magic "motleyWM", version, kind, normalisation, factors (u32 each), init_scale,
//   initial_accumulator (f32), seed, slots (u64), ids [slots] u32, state [Layout::size()] f32,
//   CRC-32 of all before it (u32)
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "comm/error.h"
#include "wide/fm.h"
#include "wide/model.h"

namespace motley::wide {
namespace {

static_assert(std::endian::native == std::endian::little, "model files are written as memory is");

constexpr char kMagic[8] = {'m', 'o', 't', 'l', 'e', 'y', 'W', 'M'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t kind;
  std::uint32_t normalisation;
  std::uint32_t factors;
  float init_scale;
  float initial_accumulator;
  std::uint64_t seed;
  std::uint64_t slots;
};
static_assert(sizeof(Header) == 48, "no padding in the file");

// CRC-32 as in zlib and Ethernet, polynomial 0xedb88320, continued from `crc` (0 at first).
std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t n) {
  static constexpr auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0xedb88320u : 0u);
      table[i] = c;
    }
    return table;
  }();
  const auto* const bytes = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (std::size_t i = 0; i < n; ++i) crc = kTable[(crc ^ bytes[i]) & 0xff] ^ (crc >> 8);
  return ~crc;
}

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

File open(const std::string& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode));
  if (file == nullptr) throw_errno("open " + path);
  return file;
}

// Writes, or reads, pieces of a file and keeps the checksum of all so far.
class Writer {
 public:
  explicit Writer(const std::string& path) : path_(path), file_(open(path, "wb")) {}
  void put(const void* data, std::size_t n) {
    if (n > 0 && std::fwrite(data, 1, n, file_.get()) != n) throw_errno("write " + path_);
    crc_ = crc32(crc_, data, n);
  }
  void finish() {
    const std::uint32_t crc = crc_;
    put(&crc, sizeof crc);
    const bool flushed = std::fflush(file_.get()) == 0;
    // EINVAL: a device or pipe has nothing to keep.
    if (!flushed || (fsync(fileno(file_.get())) != 0 && errno != EINVAL)) {
      throw_errno("write " + path_);
    }
  }

 private:
  std::string path_;
  File file_;
  std::uint32_t crc_ = 0;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(open(path, "rb")) {
    if (std::fseek(file_.get(), 0, SEEK_END) != 0) throw_errno("seek in " + path);
    const long size = std::ftell(file_.get());
    if (size < 0) throw_errno("seek in " + path);
    size_ = static_cast<std::uint64_t>(size);
    std::rewind(file_.get());
  }
  std::uint64_t size() const { return size_; }
  std::uint32_t crc() const { return crc_; }
  void get(void* data, std::size_t n) {
    if (n > 0 && std::fread(data, 1, n, file_.get()) != n) {
      if (std::ferror(file_.get()) != 0) throw_errno("read " + path_);
      fail("ends too early: it was truncated");
    }
    crc_ = crc32(crc_, data, n);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kInvalid, fmt::format("{}: {}", path_, what));
  }

 private:
  std::string path_;
  File file_;
  std::uint64_t size_ = 0;
  std::uint32_t crc_ = 0;
};

Header read_header(Reader& reader) {
  Header header{};
  if (reader.size() < sizeof header) {
    reader.fail(fmt::format("is no Motley model: it holds {} bytes, a model at least {}",
                            reader.size(), sizeof header));
  }
  reader.get(&header, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    reader.fail("is no Motley model: its first bytes differ. Give a file written by --output");
  }
  if (header.version != kVersion) {
    reader.fail(fmt::format("is a model file of version {}, but this program reads version {}",
                            header.version, kVersion));
  }
  return header;
}

ModelOptions options_of(const Header& header, const Reader& reader) {
  const bool known = header.kind == static_cast<std::uint32_t>(ModelKind::kLogistic) ||
                     header.kind == static_cast<std::uint32_t>(ModelKind::kFm);
  if (!known || header.normalisation > 1 || header.factors < 1 || header.factors > kMaxFactors) {
    reader.fail(fmt::format("is damaged: kind {}, normalisation {}, k {}", header.kind,
                            header.normalisation, header.factors));
  }
  return {.kind = static_cast<ModelKind>(header.kind),
          .factors = static_cast<int>(header.factors),
          .normalisation = static_cast<Normalisation>(header.normalisation),
          .init_scale = header.init_scale,
          .initial_accumulator = header.initial_accumulator,
          .seed = header.seed};
}

}  // namespace

void Model::save(const std::string& path) const {
  Header header{.magic = {},
                .version = kVersion,
                .kind = static_cast<std::uint32_t>(options_.kind),
                .normalisation = static_cast<std::uint32_t>(options_.normalisation),
                .factors = static_cast<std::uint32_t>(options_.factors),
                .init_scale = options_.init_scale,
                .initial_accumulator = options_.initial_accumulator,
                .seed = options_.seed,
                .slots = layout_.slots};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  // A file is replaced as a whole, where a link leads to; a device or pipe is written to.
  std::error_code none;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, none);
  const bool replace = !std::filesystem::exists(path, none) || is_regular_file(target, none);
  const std::string last = none ? path : target.string();
  const std::string fresh = replace ? last + ".tmp" : path;
  try {
    Writer writer(fresh);
    writer.put(&header, sizeof header);
    writer.put(dictionary_.ids().data(), dictionary_.ids().size_bytes());
    writer.put(state_.data(), state_.size() * sizeof(float));
    writer.finish();
  } catch (...) {
    if (replace) std::remove(fresh.c_str());
    throw;
  }
  if (replace && std::rename(fresh.c_str(), last.c_str()) != 0) {
    throw_errno("rename " + fresh + " to " + last);
  }
}

Model Model::load(const std::string& path) {
  Reader reader(path);
  const Header header = read_header(reader);
  const ModelOptions options = options_of(header, reader);
  const std::size_t weights =
      options.kind == ModelKind::kFm ? static_cast<std::size_t>(options.factors) + 1 : 1;
  const std::uint64_t slot_bytes = 4 + 8 * weights;
  const std::uint64_t fixed_bytes = sizeof(Header) + 2 * sizeof(float) + sizeof(std::uint32_t);
  if (header.slots > reader.size() / slot_bytes ||
      fixed_bytes + header.slots * slot_bytes != reader.size()) {  // before anything is allocated
    reader.fail(
        fmt::format("is truncated or damaged: it holds {} bytes, but {} features with {} "
                    "weights each need {}",
                    reader.size(), header.slots, weights,
                    static_cast<double>(fixed_bytes) +
                        static_cast<double>(header.slots) * static_cast<double>(slot_bytes)));
  }
  std::vector<std::uint32_t> ids(header.slots);
  reader.get(ids.data(), ids.size() * sizeof(std::uint32_t));
  std::vector<float> state(Layout{.slots = ids.size(), .weights = weights}.size());
  reader.get(state.data(), state.size() * sizeof(float));
  const std::uint32_t computed = reader.crc();
  std::uint32_t stored = 0;
  reader.get(&stored, sizeof stored);
  if (stored != computed) {
    reader.fail(
        fmt::format("is damaged: its checksum is {:08x}, its contents' {:08x}", stored, computed));
  }
  Model model(options, Dictionary(std::move(ids)));
  model.state_ = std::move(state);
  return model;
}

}  // namespace motley::wide
