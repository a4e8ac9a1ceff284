#include "comm/control/recollection.h"

#include <algorithm>
#include <utility>

#include "comm/control/packing.h"

namespace motley {
namespace {

constexpr std::size_t kLongest = std::size_t{64} << 10;  // value that is remembered

void put_text(std::string& out, const std::string& text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  out.append(text);
}

std::string take_text(Unpacker& in, std::size_t most) {
  const auto size = in.take<std::uint32_t>();
  in.refuse_unless(size <= most);
  return std::string(in.take_bytes(in.ok() ? size : 0));
}

// So many entries as fit, each made by `make`, behind their number.
template <class Map, class Make>
void put_some(std::string& out, const Map& entries, const Make& make) {
  std::string all;
  std::uint32_t number = 0;
  for (const auto& [key, entry] : entries) {
    std::string one;
    put_text(one, key);
    make(one, entry);
    if (out.size() + all.size() + one.size() + 3 * sizeof number > kMaxValueBytes) continue;
    all += one;
    ++number;
  }
  put(out, number);
  out += all;
}

}  // namespace

void Recollection::learn(const Message& request, const Message& answer) {
  const bool told = answer.type == MessageType::kValue;
  switch (request.type) {
    case MessageType::kSet:
      if (answer.type == MessageType::kOk && request.value.size() <= kLongest) {
        values[request.key] = request.value;
      }
      return;
    case MessageType::kAdd:
      if (told) counters[request.key] = answer.number;
      return;
    case MessageType::kSupplyOpen: {
      const auto lists = decode_ranges(request.value, 1, request.number);
      if (answer.type != MessageType::kOk || lists.empty()) return;
      supplies.try_emplace(request.key, Supply{request.number, true, lists.front(), {}});
      return;
    }
    case MessageType::kSupplyTake:
    case MessageType::kSupplyLeft: {
      const auto known = supplies.find(request.key);
      if (!told || known == supplies.end()) return;
      Supply& supply = known->second;
      const auto asked = decode_ranges(request.value, 2, supply.count);
      const auto got = decode_ranges(answer.value, 2, supply.count);
      if (asked.empty() || got.empty()) return;
      supply.holds = asked[1];
      if (request.type == MessageType::kSupplyTake) {
        supply.holds.insert(supply.holds.end(), got[0].begin(), got[0].end());
      }
      supply.uncounted = got[1];
      supply.whole = answer.number == 0 || !got[1].empty();
      return;
    }
    default:
      return;
  }
}

std::string encode(const Recollection& recollection) {
  std::string out;
  put_some(out, recollection.supplies, [](std::string& one, const Recollection::Supply& supply) {
    put(one, supply.count);
    put(one, static_cast<std::uint8_t>(supply.whole));
    put_text(one, encode_ranges({supply.uncounted, supply.holds}));
  });
  put_some(out, recollection.counters,
           [](std::string& one, std::int64_t counter) { put(one, counter); });
  put_some(out, recollection.values,
           [](std::string& one, const std::string& value) { put_text(one, value); });
  return out;
}

std::optional<Recollection> decode_recollection(const std::string& bytes) {
  Unpacker in(bytes);
  Recollection result;
  for (auto number = in.take<std::uint32_t>(); in.ok() && number > 0; --number) {
    const std::string name = take_text(in, kMaxKeyBytes);
    Recollection::Supply supply{.count = in.take<std::int64_t>(), .whole = true};
    const auto whole = in.take<std::uint8_t>();
    const auto lists = decode_ranges(take_text(in, kMaxValueBytes), 2, supply.count);
    in.refuse_unless(whole <= 1 && supply.count >= 0 && lists.size() == 2);
    if (!in.ok()) break;
    supply.whole = whole == 1;
    supply.uncounted = lists[0];
    supply.holds = lists[1];
    result.supplies[name] = std::move(supply);
  }
  for (auto number = in.take<std::uint32_t>(); in.ok() && number > 0; --number) {
    const std::string key = take_text(in, kMaxKeyBytes);
    result.counters[key] = in.take<std::int64_t>();
  }
  for (auto number = in.take<std::uint32_t>(); in.ok() && number > 0; --number) {
    const std::string key = take_text(in, kMaxKeyBytes);
    result.values[key] = take_text(in, kMaxValueBytes);
  }
  if (!in.at_end()) return std::nullopt;
  return result;
}

}  // namespace motley
