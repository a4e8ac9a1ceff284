// runtime/checkpoint/format.h: names and content of the files of a checkpoint (checkpoint.h), and
// which worker writes which elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/dtype.h"
#include "comm/view.h"
#include "runtime/state.h"

namespace motley::runtime {

// kInvalid: `path` is not what a complete checkpoint needs.
[[noreturn]] void throw_damaged(const std::string& path, const std::string& what);

std::uint32_t crc32_of(ConstBytes bytes, std::uint32_t before = 0);

// A StateItem without its memory.
struct ItemLayout {
  std::string name;
  std::vector<std::size_t> shape;
  DType dtype = DType::kFloat32;
  StatePolicy policy = StatePolicy::kAverage;
  int owner = -1;  // of a kOwned item: the worker whose part has it

  bool operator==(const ItemLayout&) const = default;
  std::size_t count() const noexcept;
};

std::vector<ItemLayout> layout_of(const State& state);
// One line for each, for messages and checksums.
std::string to_text(const ItemLayout& item);

struct PartEntry {
  std::uint64_t bytes = 0;  // of the file
  std::uint32_t crc32 = 0;
};

struct Index {
  std::int64_t number = 0;
  std::int64_t step = 0;
  std::vector<ItemLayout> items;
  std::vector<PartEntry> parts;  // one a worker

  int workers() const noexcept { return static_cast<int>(parts.size()); }
};

std::string to_text(const Index& index);
// Throws kInvalid, naming `path`, for what is no index, of another version, cut or damaged.
Index parse_index(const std::string& path, ConstBytes content);

struct Part {
  std::int64_t number = 0;
  int worker = 0;
  int workers = 1;
};

std::string index_name(std::int64_t number);
std::string part_name(const Part& part);
std::string part_header(const Part& part);
// A file's name while it is written.
std::string temporary(const std::string& name);

// The checkpoint that a file belongs to, complete or not; nullopt for other files.
struct Member {
  std::int64_t number = 0;
  bool index = false;  // it is the index, under its final name
};
std::optional<Member> member_of(std::string_view name);

// Elements [first, first + count) of an item of `total` elements.
struct Range {
  std::size_t first = 0;
  std::size_t count = 0;
};
// What a worker's part has of an item.
Range share(const ItemLayout& item, int worker, int workers);

}  // namespace motley::runtime
