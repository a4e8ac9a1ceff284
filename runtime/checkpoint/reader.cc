#include "runtime/checkpoint/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "comm/error.h"
#include "runtime/numeric/types.h"

namespace motley::runtime {
namespace {

// The file of a part, checked against its index. Returns what follows its header.
std::vector<std::byte> read_part(const FileSystem& files, const std::string& folder,
                                 const Index& index, int worker) {
  const Part part{index.number, worker, index.workers()};
  const std::string path = folder + "/" + part_name(part);
  const PartEntry& entry = index.parts[static_cast<std::size_t>(worker)];
  std::vector<std::byte> content = files.read(path);
  if (content.size() != entry.bytes) {
    throw_damaged(path,
                  fmt::format("{} bytes, but its index says {}", content.size(), entry.bytes));
  }
  const std::string header = part_header(part);
  const bool ours = content.size() >= header.size() &&
                    std::memcmp(content.data(), header.data(), header.size()) == 0;
  if (!ours) {
    throw_damaged(path, fmt::format("it does not begin with \"{}\"",
                                    std::string_view(header).substr(0, header.size() - 1)));
  }
  const std::uint32_t crc = crc32_of(content);
  if (crc != entry.crc32) {
    throw_damaged(path, fmt::format("crc32 {:08x}, but its index says {:08x}", crc, entry.crc32));
  }
  std::size_t expected = header.size();
  for (const ItemLayout& item : index.items) {
    expected += share(item, worker, index.workers()).count * size_bytes(item.dtype);
  }
  if (content.size() != expected) {
    throw_damaged(path, fmt::format("{} bytes, but its items need {}", content.size(), expected));
  }
  content.erase(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(header.size()));
  return content;
}

void add(const ItemLayout& item, std::vector<std::byte>& sums, ConstBytes bytes) {
  const std::vector<std::byte> terms(bytes.begin(), bytes.end());  // aligned
  with_type(item.dtype, [&]<class T>(T) {
    const std::size_t count = item.count();
    const auto sum = View(sums.data(), count, item.dtype).as<T>();
    const auto term = ConstView(terms.data(), count, item.dtype).template as<const T>();
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] = static_cast<T>(static_cast<Wide<T>>(sum[i]) + static_cast<Wide<T>>(term[i]));
    }
  });
}

// Takes from part `from` of `parts` what worker `worker` of `workers` needs of an item.
void take(const ItemLayout& item, std::optional<std::vector<std::byte>>& content, ConstBytes bytes,
          Range range, const Part& from, const Part& to) {
  if (item.policy == StatePolicy::kOwned) {
    if (item.owner == from.worker) content.emplace(bytes.begin(), bytes.end());
    return;
  }
  const bool counts = item.policy == StatePolicy::kSum && from.workers != to.workers;
  const bool own = from.worker == to.worker;
  if (!is_shared(item.policy) && !counts && !own) return;
  if (!content) content.emplace(item.count() * size_bytes(item.dtype));
  if (counts) {
    if (to.worker == 0) add(item, *content, bytes);
  } else {
    std::ranges::copy(bytes, content->begin() +
                                 static_cast<std::ptrdiff_t>(range.first * size_bytes(item.dtype)));
  }
}

}  // namespace

Index read_index(const FileSystem& files, const std::string& folder, std::int64_t number) {
  const std::string path = folder + "/" + index_name(number);
  Index index = parse_index(path, files.read(path));
  if (index.number != number) {
    throw_damaged(path,
                  fmt::format("it is the index of checkpoint {}, not {}", index.number, number));
  }
  return index;
}

void check_layout(const std::string& path, const Index& index, const State& state) {
  const std::vector<ItemLayout> here = layout_of(state);
  for (std::size_t i = 0; i < std::max(here.size(), index.items.size()); ++i) {
    const std::string saved = i < index.items.size() ? to_text(index.items[i]) : "nothing";
    const std::string given = i < here.size() ? to_text(here[i]) : "nothing";
    if (saved == given) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("checkpoint {}: item {} of {} is {}, but of the {} of the state to "
                            "load it is {}. List what was saved, in that order.",
                            path, i, index.items.size(), saved, here.size(), given));
  }
}

Contents read_parts(const FileSystem& files, const std::string& folder, const Index& index,
                    const State& state, const Part& to) {
  Contents contents(index.items.size());
  for (int from = 0; from < index.workers(); ++from) {
    const std::vector<std::byte> content = read_part(files, folder, index, from);
    ConstBytes rest = content;
    for (std::size_t i = 0; i < index.items.size(); ++i) {
      const ItemLayout& item = index.items[i];
      const Range range = share(item, from, index.workers());
      const std::size_t bytes = range.count * size_bytes(item.dtype);
      const bool elsewhere = item.policy == StatePolicy::kOwned && state.items()[i].data.count == 0;
      if (!elsewhere) {
        take(item, contents[i], rest.first(bytes), range, {index.number, from, index.workers()},
             to);
      }
      rest = rest.subspan(bytes);
    }
  }
  return contents;
}

}  // namespace motley::runtime
