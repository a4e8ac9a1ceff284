#include "comm/transport/ucx_header.h"

#include <algorithm>

namespace motley {
namespace {

class Writer {
 public:
  explicit Writer(std::byte* out) : out_(out) {}
  template <class T>
  void put(T value) noexcept {
    const auto bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) *out_++ = static_cast<std::byte>(bits >> (8 * i));
  }

 private:
  std::byte* out_;
};

class Reader {
 public:
  explicit Reader(const std::byte* in) : in_(in) {}
  template <class T>
  void get(T& value) noexcept {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) bits |= std::uint64_t(*in_++) << (8 * i);
    value = static_cast<T>(bits);
  }

 private:
  const std::byte* in_;
};

// The one list of fields, for writing and reading alike.
template <class Header, class Action>
void each_field(Header& h, const Action& action) noexcept {
  action(h.seal);
  action(h.session);
  action(h.sequence);
  action(h.from);
  action(h.kind);
  action(h.tag.fingerprint.kind);
  action(h.tag.fingerprint.dtype);
  action(h.tag.fingerprint.op);
  action(h.tag.call.group.id);
  action(h.tag.call.group.epoch);
  action(h.tag.call.group.attempt);
  action(h.tag.call.number);
  action(h.tag.piece);
  action(h.tag.fingerprint.count);
  action(h.tag.fingerprint.root);
  action(h.tag.fingerprint.pieces);
  action(h.tag.fingerprint.algorithm);
}

}  // namespace

void UcxHeader::write(std::byte* out) const noexcept {
  std::fill_n(out, kBytes, std::byte{0});
  Writer writer(out);
  each_field(*this, [&](const auto& field) { writer.put(field); });
}

std::optional<UcxHeader> UcxHeader::read(ConstBytes message) noexcept {
  if (message.size() < kBytes) return std::nullopt;
  UcxHeader header;
  Reader reader(message.data());
  each_field(header, [&](auto& field) { reader.get(field); });
  const Fingerprint& f = header.tag.fingerprint;
  if (header.kind > Kind::kBye || static_cast<int>(f.kind) >= kCallKinds ||
      f.dtype > DType::kInt64 || f.op > ReduceOp::kWeightedSum) {
    return std::nullopt;
  }
  return header;
}

}  // namespace motley
