// libFuzzer driver of CSV, Criteo and Avazu: build with -DMOTLEY_FUZZ=ON and clang, run
// fuzz_columns. The first byte chooses among schemas.
#include <cstddef>
#include <cstdint>

#include "test/wide/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley::wide;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  static const auto kColumns =
      parse_columns("y:label,w:weight,h:hour,n:number,l:log,b:bucket,t:list,s:skip,*:category");
  ReadOptions options{.bits = data[0] % 33, .names = data[0] > 127};
  switch (data[0] % 5) {
    case 0:
      options.format = Format::kCriteo;
      break;
    case 1:
      options.format = Format::kAvazu;
      break;
    case 2:
      options.format = Format::kCsv;
      break;
    case 3:
      options.columns = kColumns;
      break;
    default:
      options.format = Format::kCsv;
      options.columns = parse_columns("y:label,a:category,b:bucket");
  }
  for (const Labels labels : {Labels::kBinary, Labels::kReal, Labels::kOptional}) {
    options.labels = labels;
    check_parse(text, options);
    check_ways(text, options);
  }
  return 0;
}
