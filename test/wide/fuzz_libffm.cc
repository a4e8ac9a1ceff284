// libFuzzer driver of the libffm reader: build with -DMOTLEY_FUZZ=ON and clang, run fuzz_libffm.
#include <cstddef>
#include <cstdint>

#include "test/wide/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  motley::wide::check_parse(text, motley::wide::Format::kLibffm);
  motley::wide::check_parse(text, std::nullopt);
  return 0;
}
