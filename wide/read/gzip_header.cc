#include "wide/read/gzip_header.h"

#include <fmt/format.h>
#include <isa-l/crc.h>

#include "comm/error.h"

namespace motley::wide {
namespace {

constexpr std::size_t kFixedBytes = 10;
// Flags of parts that may follow.
constexpr unsigned kHasChecksum = 2;
constexpr unsigned kHasExtra = 4;
constexpr unsigned kHasName = 8;
constexpr unsigned kHasComment = 16;
constexpr unsigned kReserved = 0xe0;

[[noreturn]] void refuse(const char* why) {
  throw Error(ErrorCode::kInvalid, fmt::format("gzip data is damaged ({})", why));
}

}  // namespace

std::size_t GzipHeader::read(const char* in, std::size_t n) {
  std::size_t used = 0;
  while (used < n && !complete()) take(static_cast<std::uint8_t>(in[used++]));
  return used;
}

void GzipHeader::take(std::uint8_t byte) {
  if (part_ == Part::kChecksum) return take_checksum(byte);
  checksum_ = crc32_gzip_refl(checksum_, &byte, 1);
  switch (part_) {
    case Part::kFixed:
      return take_fixed(byte);
    case Part::kExtraSize:
      number_ |= static_cast<std::uint32_t>(byte) << (8 * at_);
      if (++at_ == 2) next();
      return;
    case Part::kExtra:
      if (++at_ == number_) next();
      return;
    default:  // a name or comment, which a zero ends
      if (byte == 0) next();
  }
}

void GzipHeader::take_fixed(std::uint8_t byte) {
  if ((at_ == 0 && byte != 0x1f) || (at_ == 1 && byte != 0x8b)) refuse("no header");
  if (at_ == 2 && byte != 8) refuse("unknown method");
  if (at_ == 3) flags_ = byte;
  if ((flags_ & kReserved) != 0) refuse("unknown flags");
  if (++at_ == kFixedBytes) next();
}

void GzipHeader::take_checksum(std::uint8_t byte) {
  number_ |= static_cast<std::uint32_t>(byte) << (8 * at_);
  if (++at_ < 2) return;
  if (number_ != (checksum_ & 0xffff)) refuse("the checksum of its header differs");
  next();
}

void GzipHeader::next() {
  at_ = 0;
  const auto enter = [&](Part part, bool exists) {
    if (part_ >= part || !exists) return false;
    part_ = part;
    return true;
  };
  if (enter(Part::kExtraSize, (flags_ & kHasExtra) != 0)) return;
  if (enter(Part::kExtra, number_ > 0)) return;
  number_ = 0;
  if (enter(Part::kName, (flags_ & kHasName) != 0)) return;
  if (enter(Part::kComment, (flags_ & kHasComment) != 0)) return;
  if (enter(Part::kChecksum, (flags_ & kHasChecksum) != 0)) return;
  part_ = Part::kDone;
}

}  // namespace motley::wide
