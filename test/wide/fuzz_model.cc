// libFuzzer driver of models, as files and as text: build with -DMOTLEY_FUZZ=ON and clang, run
// fuzz_model. What loads must score rows, save, and load again.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "comm/error.h"
#include "test/support/fuzz.h"
#include "wide/model.h"
#include "wide/model_text.h"
#include "wide/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley::wide;
  using motley::test::require;
  static const std::string kPath = "/dev/shm/motley_fuzz_model_" + std::to_string(getpid());
  if (size == 0) return 0;
  std::ofstream(kPath, std::ios::binary)
      .write(reinterpret_cast<const char*>(data) + 1, static_cast<std::streamsize>(size - 1));
  try {
    const Model model =
        data[0] % 4 == 0
            ? Model::load(kPath)
            : load_text(kPath, data[0] % 2 == 0 ? Normalisation::kInstance : Normalisation::kNone);
    if (model.layout().size() > std::size_t{1} << 22) return 0;
    model.scores(model.prepare(parse_text("1 0:0:1 1:1:0.5\n0 0:1:1\n", "rows")));
    save_text(model, kPath);
    const Model again = load_text(kPath);
    require(again.layout().slots == model.layout().slots);
    model.save(kPath);
    require(Model::load(kPath).layout().size() == model.layout().size());
  } catch (const motley::Error&) {
  }
  return 0;
}
