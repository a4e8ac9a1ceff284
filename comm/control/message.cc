#include "comm/control/message.h"

#include <fmt/format.h>

#include <bit>
#include <concepts>
#include <cstring>

#include "comm/error.h"

namespace motley {
namespace {

static_assert(std::endian::native == std::endian::little, "encode() copies integers as they lie");

constexpr std::uint32_t kMagic = 0x594c544d;  // "MTLY"
constexpr std::uint8_t kVersion = 10;
constexpr std::size_t kLengthOffset = 8;  // after magic, version, type and two bytes of padding

class Writer {
 public:
  template <std::integral T>
  void put(T value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof(T));
  }
  void put(const std::string& text) {
    put(static_cast<std::uint32_t>(text.size()));
    const auto* first = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), first, first + text.size());
  }
  std::vector<std::byte> finish() {
    const auto length = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data() + kLengthOffset, &length, sizeof length);
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

// Every take() after the first that failed gives zero; ok() tells in the end.
class Reader {
 public:
  explicit Reader(ConstBytes bytes) : bytes_(bytes) {}

  template <std::integral T>
  T take() {
    T value = 0;
    if (!has(sizeof(T))) return 0;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  std::string take_text(std::size_t max) {
    const std::size_t size = take<std::uint32_t>();
    if (size > max || !has(size)) {
      ok_ = false;
      return {};
    }
    std::string text(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return text;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && bytes_.empty(); }

 private:
  bool has(std::size_t size) {
    ok_ = ok_ && bytes_.size() >= size;
    return ok_;
  }

  ConstBytes bytes_;
  bool ok_ = true;
};

}  // namespace

std::optional<Lane> lane_of(MessageType type) noexcept {
  switch (type) {
    case MessageType::kSet:
    case MessageType::kGet:
    case MessageType::kAdd:
    case MessageType::kBye:
      return Lane::kStore;
    case MessageType::kReady:
    case MessageType::kBegin:
    case MessageType::kDone:
    case MessageType::kFail:
    case MessageType::kWithdraw:
    case MessageType::kLeave:
      return Lane::kGroup;
    case MessageType::kReport:
      return Lane::kReport;
    case MessageType::kSupplyOpen:
    case MessageType::kSupplyTake:
    case MessageType::kSupplyLeft:
      return Lane::kSupply;
    case MessageType::kRecall:
      return Lane::kMemory;
    default:
      return std::nullopt;
  }
}

std::vector<std::byte> encode(const Message& message) {
  Writer out;
  out.put(kMagic);
  out.put(kVersion);
  out.put(static_cast<std::uint8_t>(message.type));
  out.put(std::uint16_t{0});
  out.put(std::uint32_t{0});  // the length, filled in by finish()
  out.put(message.epoch);
  out.put(message.seq);
  out.put(message.rank);
  out.put(message.count);
  out.put(message.number);
  out.put(message.tag.id);
  out.put(message.tag.epoch);
  out.put(message.tag.attempt);
  out.put(static_cast<std::uint32_t>(message.ranks.size()));
  for (const std::int32_t rank : message.ranks) out.put(rank);
  out.put(message.key);
  out.put(message.value);
  return out.finish();
}

std::optional<Message> decode(ConstBytes bytes) {
  Reader in(bytes);
  Message message;
  if (in.take<std::uint32_t>() != kMagic || in.take<std::uint8_t>() != kVersion)
    return std::nullopt;
  const auto type = in.take<std::uint8_t>();
  if (type > static_cast<std::uint8_t>(MessageType::kFenced)) return std::nullopt;
  message.type = static_cast<MessageType>(type);
  if (in.take<std::uint16_t>() != 0) return std::nullopt;
  if (in.take<std::uint32_t>() != bytes.size()) return std::nullopt;
  message.epoch = in.take<std::uint32_t>();
  message.seq = in.take<std::uint64_t>();
  message.rank = in.take<std::int32_t>();
  message.count = in.take<std::int32_t>();
  message.number = in.take<std::int64_t>();
  message.tag.id = in.take<std::uint64_t>();
  message.tag.epoch = in.take<std::uint32_t>();
  message.tag.attempt = in.take<std::uint32_t>();
  const auto count = in.take<std::uint32_t>();
  if (count > kMaxGroupRanks) return std::nullopt;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    message.ranks.push_back(in.take<std::int32_t>());
  }
  message.key = in.take_text(kMaxKeyBytes);
  message.value = in.take_text(kMaxValueBytes);
  if (!in.at_end()) return std::nullopt;
  return message;
}

std::optional<Message> refusal_of(ConstBytes bytes) {
  Reader in(bytes);
  if (in.take<std::uint32_t>() != kMagic) return std::nullopt;
  const auto version = in.take<std::uint8_t>();
  if (!in.ok() || version == kVersion) return std::nullopt;
  return Message{
      .type = MessageType::kRefused,
      .number = static_cast<std::int64_t>(ErrorCode::kInvalid),
      .value = fmt::format("version {} of the control protocol is spoken here, {} there. Take all "
                           "programs of a job from one release.",
                           kVersion, version)};
}

}  // namespace motley
