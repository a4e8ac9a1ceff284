// The index of a checkpoint, as a file that anyone may have written: read or refused as invalid,
// and what is read is written as text that reads back equal. Most inputs would fail at the
// checksum, so each is tried with the right one, too.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/error.h"
#include "runtime/checkpoint/format.h"
#include "test/support/fuzz.h"

namespace motley::runtime {
namespace {

void check(const std::string& text) {
  const auto bytes = [](const std::string& of) { return std::as_bytes(std::span(of)); };
  try {
    const Index index = parse_index("input", bytes(text));
    const std::string written = to_text(index);
    test::require(to_text(parse_index("again", bytes(written))) == written);
  } catch (const Error& error) {
    test::require(error.code() == ErrorCode::kInvalid);
  }
}

}  // namespace
}  // namespace motley::runtime

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley::runtime;
  const std::string text(reinterpret_cast<const char*>(data), size);
  check(text);
  const std::string before = "motley checkpoint index 1\n" + text + "\n";
  const auto crc = crc32_of(std::as_bytes(std::span(before)));
  check(before + fmt::format("crc32 {:08x}\n", crc));
  return 0;
}
