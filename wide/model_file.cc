// Model::save and Model::load. The file, little-endian:
//   magic "motleyWM", version, kind, loss, optimizer, normalisation, factors (u32 each),
//   init_scale, initial_accumulator, offset (f32), recipe bytes (u32), seed, slots, fields (u64),
//   ids [slots] u32, fields [fields] u32, recipe, state [Layout::size()] f32, CRC-32 of all before
//   it (u32)
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>

#include "comm/error.h"
#include "wide/file/whole_file.h"
#include "wide/fm.h"
#include "wide/model.h"
#include "wide/model_text.h"
#include "wide/schema.h"

namespace motley::wide {
namespace {

static_assert(std::endian::native == std::endian::little, "model files are written as memory is");

constexpr char kMagic[8] = {'m', 'o', 't', 'l', 'e', 'y', 'W', 'M'};
constexpr std::uint32_t kVersion = 4;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t kind;
  std::uint32_t loss;
  std::uint32_t optimizer;
  std::uint32_t normalisation;
  std::uint32_t factors;
  float init_scale;
  float initial_accumulator;
  float offset;
  std::uint32_t recipe_bytes;
  std::uint64_t seed;
  std::uint64_t slots;
  std::uint64_t fields;
};
static_assert(sizeof(Header) == 72, "no padding in the file");

Header read_header(SizedFile& reader) {
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

ModelOptions options_of(const Header& header, const SizedFile& reader) {
  const bool known = header.kind >= 1 && header.kind <= 5 && header.loss >= 1 && header.loss <= 4 &&
                     header.optimizer >= 1 && header.optimizer <= 4;
  if (!known || header.normalisation > 1 || header.factors < 1 || header.factors > kMaxFactors) {
    reader.fail(fmt::format("is damaged: kind {}, loss {}, optimizer {}, normalisation {}, k {}",
                            header.kind, header.loss, header.optimizer, header.normalisation,
                            header.factors));
  }
  return {.kind = static_cast<ModelKind>(header.kind),
          .loss = static_cast<Loss>(header.loss),
          .optimizer = static_cast<Optimizer>(header.optimizer),
          .factors = static_cast<int>(header.factors),
          .normalisation = static_cast<Normalisation>(header.normalisation),
          .init_scale = header.init_scale,
          .initial_accumulator = header.initial_accumulator,
          .seed = header.seed};
}

}  // namespace

void Model::save(const std::string& path) const {
  save(path, [this](const PutFloats& put) { put(state_); });
}

void Model::save(const std::string& path,
                 const std::function<void(const PutFloats&)>& write) const {
  Header header{.magic = {},
                .version = kVersion,
                .kind = static_cast<std::uint32_t>(options_.kind),
                .loss = static_cast<std::uint32_t>(options_.loss),
                .optimizer = static_cast<std::uint32_t>(options_.optimizer),
                .normalisation = static_cast<std::uint32_t>(options_.normalisation),
                .factors = static_cast<std::uint32_t>(options_.factors),
                .init_scale = options_.init_scale,
                .initial_accumulator = options_.initial_accumulator,
                .offset = offset_,
                .recipe_bytes = static_cast<std::uint32_t>(recipe_.size()),
                .seed = options_.seed,
                .slots = layout_.slots,
                .fields = fields_.size()};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  WholeFile file(path);
  file.put(&header, sizeof header);
  file.put(dictionary_.ids().data(), dictionary_.ids().size_bytes());
  file.put(fields_.data(), fields_.size() * sizeof(std::uint32_t));
  file.put(recipe_);
  std::size_t floats = 0;
  write([&](std::span<const float> part) {
    file.put(part.data(), part.size_bytes());
    floats += part.size();
  });
  assert(floats == layout_.size());
  const std::uint32_t crc = file.crc();
  file.put(&crc, sizeof crc);
  file.commit();
}

bool Model::is_saved(const std::string& path) {
  const OpenFile file(std::fopen(path.c_str(), "rb"));
  char start[sizeof kMagic];
  return file != nullptr && std::fread(start, 1, sizeof start, file.get()) == sizeof start &&
         std::memcmp(start, kMagic, sizeof start) == 0;
}

Model Model::load(const std::string& path) {
  if (is_model_text(path)) {
    throw Error(ErrorCode::kInvalid,
                path +
                    ": is a model as text. Make a binary one of it by load_text() and save(), or "
                    "by motley-wide convert");
  }
  SizedFile reader(path);
  const Header header = read_header(reader);
  const ModelOptions options = options_of(header, reader);
  // Before anything is allocated; no product below overflows.
  const std::uint64_t most = reader.size() / sizeof(std::uint32_t);
  if (header.slots > most || header.recipe_bytes > reader.size() ||
      header.fields > std::min<std::uint64_t>(most, 65'535)) {
    reader.fail(
        fmt::format("is truncated or damaged: it holds {} bytes, but names {} features and "
                    "{} fields",
                    reader.size(), header.slots, header.fields));
  }
  const Layout layout = Layout::of(options, header.slots, header.fields);
  const std::uint64_t needed = sizeof(Header) + sizeof(std::uint32_t) + header.recipe_bytes +
                               4 * (header.slots + header.fields + std::uint64_t{layout.size()});
  if (needed != reader.size()) {
    reader.fail(
        fmt::format("is truncated or damaged: it holds {} bytes, but {} features with {} "
                    "factors each need {}",
                    reader.size(), header.slots, layout.width, needed));
  }
  std::vector<std::uint32_t> ids(header.slots);
  reader.get(ids.data(), ids.size() * sizeof(std::uint32_t));
  std::vector<std::uint32_t> fields(header.fields);
  reader.get(fields.data(), fields.size() * sizeof(std::uint32_t));
  std::string recipe(header.recipe_bytes, '\0');
  reader.get(recipe.data(), recipe.size());
  Floats state(layout.size());
  reader.get(state.data(), state.size() * sizeof(float));
  const std::uint32_t computed = reader.crc();
  std::uint32_t stored = 0;
  reader.get(&stored, sizeof stored);
  if (stored != computed) {
    reader.fail(
        fmt::format("is damaged: its checksum is {:08x}, its contents' {:08x}", stored, computed));
  }
  Model model(options, Dictionary(std::move(ids)), std::move(fields));
  model.state_ = std::move(state);
  model.offset_ = header.offset;
  from_recipe(recipe);  // throws where no data could be read by it
  model.recipe_ = std::move(recipe);
  return model;
}

}  // namespace motley::wide
