// Headers on UCX connections: none is read as something that does not exist, and what is read is
// written alike.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "comm/transport/ucx_header.h"
#include "test/support/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto header = UcxHeader::read(bytes);
  if (!header) return 0;
  std::array<std::byte, UcxHeader::kBytes> again;
  header->write(again.data());
  const auto read = UcxHeader::read(again);
  test::require(read && read->session == header->session && read->kind == header->kind);
  test::require(read->tag.call == header->tag.call && read->tag.piece == header->tag.piece);
  test::require(read->tag.fingerprint == header->tag.fingerprint);
  test::require(name(header->tag.fingerprint.kind) != std::string_view("unknown"));
  return 0;
}
