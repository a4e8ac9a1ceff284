#include "runtime/checkpoint/format.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include "comm/error.h"
#include "comm/json.h"

namespace motley::runtime {
namespace {

constexpr std::string_view kFirstLine = "motley checkpoint index ";
constexpr int kVersion = 1;
constexpr std::string_view kByteOrder =
    std::endian::native == std::endian::little ? "little" : "big";

constexpr std::array kDTypes = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                DType::kInt8,    DType::kInt16,   DType::kInt32,   DType::kInt64};
constexpr std::array kPolicies = {StatePolicy::kAverage, StatePolicy::kMaximum, StatePolicy::kSum,
                                  StatePolicy::kKeepOwn, StatePolicy::kOwned};

// The one of `all` that is called `text`.
template <class T, std::size_t kCount>
T named(const std::string& path, const std::array<T, kCount>& all, const std::string& text) {
  for (const T value : all) {
    if (name(value) == text) return value;
  }
  throw_damaged(path, fmt::format("\"{}\" is not known to this version", text));
}

std::string crc_line(std::string_view text) {
  return fmt::format("crc32 {:08x}\n", crc32_of(std::as_bytes(std::span(text))));
}

// The JSON between first and last line, both checked.
std::string_view body_of(const std::string& path, std::string_view text) {
  if (text.substr(0, kFirstLine.size()) != kFirstLine) {
    throw_damaged(path, fmt::format("{} bytes that do not begin with \"{}\": no index", text.size(),
                                    kFirstLine));
  }
  const std::string head = fmt::format("{}{}\n", kFirstLine, kVersion);
  if (text.substr(0, head.size()) != head) {
    const std::string_view line = text.substr(0, std::min(text.find('\n'), std::size_t{80}));
    throw_damaged(path, fmt::format("\"{}\", but this build reads version {}", line, kVersion));
  }
  const std::size_t tail = crc_line("").size();
  if (text.size() < head.size() + tail) {
    throw_damaged(path, fmt::format("cut at {} bytes", text.size()));
  }
  const std::string_view before = text.substr(0, text.size() - tail);
  const std::string_view last = text.substr(before.size());
  const std::string expected = crc_line(before);
  if (last != expected) {
    throw_damaged(
        path, fmt::format("cut or changed: it ends in \"{}\", not \"{}\"", last.substr(0, tail - 1),
                          expected.substr(0, expected.size() - 1)));
  }
  return before.substr(head.size());
}

}  // namespace

void throw_damaged(const std::string& path, const std::string& what) {
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("checkpoint {}: {}. Load with fall_back to use the one before.", path, what));
}

std::uint32_t crc32_of(ConstBytes bytes, std::uint32_t before) {
  if (bytes.empty()) return before;  // zlib takes a null pointer for a new beginning
  return static_cast<std::uint32_t>(
      crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::size_t ItemLayout::count() const noexcept {
  std::size_t product = 1;
  for (const std::size_t dimension : shape) product *= dimension;
  return product;
}

std::vector<ItemLayout> layout_of(const State& state) {
  std::vector<ItemLayout> layout;
  for (const StateItem& item : state.items()) {
    layout.push_back({item.name, item.shape, item.data.dtype, item.policy, -1});
  }
  return layout;
}

std::string to_text(const ItemLayout& item) {
  return to_text(
      StateItem{item.name, item.shape, View(nullptr, item.count(), item.dtype), item.policy});
}

std::string to_text(const Index& index) {
  nlohmann::json items = nlohmann::json::array(), parts = nlohmann::json::array();
  for (const ItemLayout& item : index.items) {
    items.push_back({{"name", item.name},
                     {"shape", item.shape},
                     {"dtype", name(item.dtype)},
                     {"policy", name(item.policy)}});
    if (item.policy == StatePolicy::kOwned) items.back()["owner"] = item.owner;
  }
  for (const PartEntry& part : index.parts) {
    parts.push_back({{"bytes", part.bytes}, {"crc32", part.crc32}});
  }
  const nlohmann::json all = {{"number", index.number},
                              {"step", index.step},
                              {"byte_order", kByteOrder},
                              {"items", items},
                              {"parts", parts}};
  const std::string text = fmt::format("{}{}\n{}\n", kFirstLine, kVersion, json_text(all));
  return text + crc_line(text);
}

Index parse_index(const std::string& path, ConstBytes content) {
  const std::string_view body =
      body_of(path, {reinterpret_cast<const char*>(content.data()), content.size()});
  try {
    const nlohmann::json all = parse_json(body);
    if (all.at("byte_order") != kByteOrder) {
      throw_damaged(path, fmt::format("written in {}-endian byte order, but this machine has {}",
                                      all.at("byte_order").get<std::string>(), kByteOrder));
    }
    Index index{.number = all.at("number"), .step = all.at("step")};
    for (const nlohmann::json& item : all.at("items")) {
      index.items.push_back({item.at("name"), item.at("shape"),
                             named(path, kDTypes, item.at("dtype")),
                             named(path, kPolicies, item.at("policy")), item.value("owner", -1)});
    }
    for (const nlohmann::json& part : all.at("parts")) {
      index.parts.push_back({part.at("bytes"), part.at("crc32")});
    }
    if (index.parts.empty()) throw_damaged(path, "0 parts, but it needs at least 1");
    for (const ItemLayout& item : index.items) {
      if (item.policy != StatePolicy::kOwned || item.count() == 0) continue;
      if (item.owner >= 0 && item.owner < index.workers()) continue;
      throw_damaged(
          path, fmt::format("\"{}\" is in part {} of {}", item.name, item.owner, index.workers()));
    }
    return index;
  } catch (const nlohmann::json::exception& error) {
    throw_damaged(path, error.what());
  }
}

// Of a number beyond it a file is none of ours.
constexpr std::int64_t kMostNumber = 999'999'999'999'999;

std::string index_name(std::int64_t number) { return fmt::format("{:08}.index", number); }

std::string part_name(const Part& part) {
  return fmt::format("{:08}.part-{}-of-{}", part.number, part.worker, part.workers);
}

std::string part_header(const Part& part) {
  return fmt::format("motley checkpoint {}, part {} of {}, version {}\n", part.number, part.worker,
                     part.workers, kVersion);
}

std::string temporary(const std::string& name) { return name + ".tmp"; }

std::optional<Member> member_of(std::string_view name) {
  Member member;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, member.number);
  const bool ours = member.number >= 1 && member.number <= kMostNumber;
  if (error != std::errc{} || !ours || rest - name.data() < 8) return std::nullopt;
  const std::string_view kind(rest, static_cast<std::size_t>(end - rest));
  member.index = kind == ".index";
  if (!member.index && kind != ".index.tmp" && !kind.starts_with(".part-")) return std::nullopt;
  return member;
}

Range share(const ItemLayout& item, int worker, int workers) {
  const std::size_t count = item.count();
  if (item.policy == StatePolicy::kOwned) return {0, worker == item.owner ? count : 0};
  if (!is_shared(item.policy)) return {0, count};
  const auto p = static_cast<std::size_t>(workers);
  const auto bound = [&](std::size_t i) { return count / p * i + count % p * i / p; };
  const std::size_t first = bound(static_cast<std::size_t>(worker));
  return {first, bound(static_cast<std::size_t>(worker) + 1) - first};
}

}  // namespace motley::runtime
