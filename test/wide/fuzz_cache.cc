// libFuzzer driver of the binary cache: build with -DMOTLEY_FUZZ=ON and clang, run fuzz_cache. What
// loads must be what readers promise, and save to what loads alike.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "test/wide/fuzz_reader.h"
#include "wide/cache.h"
#include "wide/reader.h"

namespace {

void write(const std::string& path, const std::uint8_t* data, std::size_t size) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
}

void check(const motley::wide::Dataset& data) {
  motley::test::require(data.row_begin.size() == data.rows() + 1);
  motley::test::require(data.row_begin.back() == data.entries());
  motley::test::require(data.values.empty() || data.values.size() == data.entries());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley::wide;
  static const std::string kPath = "/dev/shm/motley_fuzz_cache_" + std::to_string(getpid());
  // Half of the inputs as they are; the others as rows whose cache is changed at some bytes.
  if (size < 4) return 0;
  write(kPath, data, size);
  if (data[0] % 2 == 1) {
    try {
      const std::size_t changes = data[1] % 4;
      const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
      save_cache(parse_text(text, "fuzz"), kPath);
      std::fstream file(kPath, std::ios::binary | std::ios::in | std::ios::out | std::ios::ate);
      const auto bytes = static_cast<std::size_t>(file.tellp());
      for (std::size_t i = 0; i < changes; ++i) {
        file.seekp(
            static_cast<std::streamoff>((data[2 + i % 2] * 256u + data[3]) * (i + 1) % bytes));
        file.put(static_cast<char>(data[2 + i % 2]));
      }
    } catch (const motley::Error&) {
      return 0;
    }
  }
  try {
    // All but the fields can be damaged where they are left out.
    const Dataset bare = load_cache(kPath, {.memory_limit_bytes = 1 << 28, .fields = false});
    check(bare);
    motley::test::require(bare.fields.empty());
    const Dataset loaded = load_cache(kPath, {.memory_limit_bytes = 1 << 28});
    check(loaded);
    motley::test::require(loaded.ids == bare.ids && loaded.row_begin == bare.row_begin);
    save_cache(bare, kPath);
    motley::test::require(load_cache(kPath).ids == bare.ids);
    save_cache(loaded, kPath);
    motley::test::require(load_cache(kPath).fields == loaded.fields);
  } catch (const motley::Error& error) {
    motley::test::require(std::string_view(error.what()).find(kPath) != std::string_view::npos ||
                          std::string_view(error.what()).substr(0, 6) == "schema");
  }
  return 0;
}
