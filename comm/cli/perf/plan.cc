#include "comm/cli/perf/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "comm/algorithm/families.h"
#include "comm/error.h"

namespace motley::perf {
namespace {

constexpr std::string_view kUnits = "KMGT";
constexpr const char* kAll = "all";

[[noreturn]] void reject(const char* flag, std::string_view text, const std::string& use) {
  throw Error(ErrorCode::kInvalid,
              fmt::format("motley-perf: {} is \"{}\". Use {}.", flag, text, use));
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != text.npos; begin = end + 1) {
    end = text.find(',', begin);
    words.push_back(text.substr(begin, end - begin));
  }
  return words;
}

// The values whose names `text` lists, in that order.
template <class T>
std::vector<T> parse_names(const char* flag, const std::string& text, const std::vector<T>& all) {
  if (text == "all") return all;
  std::vector<T> values;
  for (const std::string& word : split(text)) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](T value) { return word == name(value); });
    if (found == all.end()) {
      std::vector<std::string> names;
      names.reserve(all.size());
      for (const T value : all) names.emplace_back(name(value));
      reject(flag, word, fmt::format("all, or one or more of {}", fmt::join(names, ",")));
    }
    values.push_back(*found);
  }
  return values;
}

bool has_data(CallKind kind) { return kind != CallKind::kBarrier; }

// Where the result of a collective lies that leaves no choice.
Place only_place(CallKind kind) {
  return kind == CallKind::kBroadcast || kind == CallKind::kBarrier ? Place::kIn : Place::kOut;
}

// Those of the algorithms asked for that `kind` has.
std::vector<std::string> algorithms_for(CallKind kind, const std::vector<std::string>& asked) {
  std::vector<std::string> names = {kAuto};
  for (const Algorithm& family : algorithms_of(kind)) names.emplace_back(family.name);
  if (asked == std::vector<std::string>{kAll}) return names;
  std::vector<std::string> result;
  for (const std::string& name : asked) {
    if (std::find(names.begin(), names.end(), name) != names.end()) result.push_back(name);
  }
  return result;
}

void add_sizes(const Plan& plan, int ranks, Cell cell, std::vector<Cell>& result) {
  std::size_t last = std::numeric_limits<std::size_t>::max();
  for (const std::size_t size : plan.sizes) {
    const std::size_t unit =
        size_bytes(cell.dtype) * (has_blocks(cell.kind) ? static_cast<std::size_t>(ranks) : 1);
    cell.count = has_data(cell.kind) ? (size + unit - 1) / unit * unit / size_bytes(cell.dtype) : 0;
    if (cell.count != last) result.push_back(cell);
    last = cell.count;
  }
}

}  // namespace

std::vector<Cell> cells(const Plan& plan, int ranks) {
  std::vector<Cell> result;
  const auto first_unless = [](bool all, auto values) {
    if (!all) values.resize(1);
    return values;
  };
  for (const CallKind kind : plan.kinds) {
    Cell cell{.kind = kind, .place = only_place(kind), .root = plan.root};
    for (const std::string& algorithm : algorithms_for(kind, plan.algorithms)) {
      cell.algorithm = algorithm;
      for (const DType dtype : first_unless(has_data(kind), plan.dtypes)) {
        cell.dtype = dtype;
        for (const ReduceOp op : first_unless(reduces(kind), plan.ops)) {
          cell.op = op;
          // Weights are no integers.
          if (op == ReduceOp::kWeightedSum && !is_floating(dtype)) continue;
          for (const Place place : first_unless(has_places(kind), plan.places)) {
            if (has_places(kind)) cell.place = place;
            for (const Buffers buffers : first_unless(has_data(kind), plan.buffers)) {
              cell.buffers = buffers;
              add_sizes(plan, ranks, cell, result);
            }
          }
        }
      }
    }
  }
  return result;
}

std::size_t parse_size(const char* flag, const std::string& text) {
  const char* const end = text.data() + text.size();
  std::size_t value = 0;
  const auto number = std::from_chars(text.data(), end, value);
  std::size_t shift = 0;
  bool right = number.ec == std::errc() && end - number.ptr <= 1;
  if (right && number.ptr != end) {
    const std::size_t unit = kUnits.find(*number.ptr);
    right = unit != kUnits.npos;
    shift = right ? 10 * (unit + 1) : 0;
  }
  if (!right || value == 0 || value > (std::numeric_limits<std::size_t>::max() >> 8 >> shift)) {
    reject(flag, text, "bytes, 1 or more, with K, M, G or T after them where wanted");
  }
  return value << shift;
}

std::vector<std::size_t> size_range(std::size_t from, std::size_t to, int factor) {
  if (factor < 2) reject("-f", std::to_string(factor), "2 or more");
  if (from > to) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("motley-perf: -b is {}, more than -e, which is {}. Use -b <= -e.",
                            size_text(from), size_text(to)));
  }
  std::vector<std::size_t> sizes = {from};
  while (sizes.back() <= to / static_cast<std::size_t>(factor)) {
    sizes.push_back(sizes.back() * static_cast<std::size_t>(factor));
  }
  return sizes;
}

std::vector<CallKind> parse_kinds(const std::string& text) {
  std::vector<CallKind> all;
  for (int kind = 0; kind < kCallKinds; ++kind) all.push_back(static_cast<CallKind>(kind));
  return parse_names("--collectives", text, all);
}

std::vector<std::string> parse_algorithms(const std::string& text,
                                          const std::vector<CallKind>& kinds) {
  if (text == kAll) return {kAll};
  std::vector<std::string> names = split(text);
  for (const std::string& name : names) {
    std::vector<std::string> known;
    for (const CallKind kind : kinds) {
      for (const std::string& family : algorithms_for(kind, {kAll})) known.push_back(family);
    }
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    reject("--algorithm", name, fmt::format("all, or one or more of {}", fmt::join(known, ",")));
  }
  return names;
}

std::vector<DType> parse_dtypes(const std::string& text) {
  return parse_names<DType>("--dtypes", text,
                            {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                             DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64});
}

std::vector<ReduceOp> parse_ops(const std::string& text) {
  return parse_names<ReduceOp>("--ops", text,
                               {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax,
                                ReduceOp::kAverage, ReduceOp::kWeightedSum});
}

std::vector<Place> parse_places(const std::string& text) {
  return parse_names<Place>("--places", text, {Place::kOut, Place::kIn});
}

std::vector<Buffers> parse_buffers(const std::string& text) {
  return parse_names<Buffers>("--buffers", text, {Buffers::kPrivate, Buffers::kAllocated});
}

std::vector<int> parse_numbers(const char* flag, const std::string& text) {
  std::vector<int> numbers;
  for (const std::string& word : split(text)) {
    int number = 0;
    const auto result = std::from_chars(word.data(), word.data() + word.size(), number);
    if (result.ec != std::errc() || result.ptr != word.data() + word.size() || number < 1) {
      reject(flag, word, "whole numbers, 1 or more, with commas between them");
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::string size_text(std::size_t bytes) {
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{}", bytes) : fmt::format("{:.4g}{}", value, kUnits[unit - 1]);
}

}  // namespace motley::perf
