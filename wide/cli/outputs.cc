#include "wide/cli/outputs.h"

#include <fmt/format.h>

#include <filesystem>

#include "comm/error.h"
#include "wide/cli/command_line.h"
#include "wide/file/whole_file.h"

namespace motley::wide {
namespace {

// By one name or by two; of devices and pipes, which keep nothing, none is.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code none;
  if (std::filesystem::exists(a, none) && !std::filesystem::is_regular_file(a, none)) return false;
  if (std::filesystem::equivalent(a, b, none)) return true;
  const auto place = std::filesystem::weakly_canonical(a, none);
  return !none && place == std::filesystem::weakly_canonical(b, none);
}

}  // namespace

void check_outputs(const std::vector<Output>& outputs, const std::vector<std::string>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Output& output = outputs[i];
    if (output.path.empty()) continue;
    const std::string meanwhile = WholeFile::name_until_whole(output.path);
    for (const std::string& input : inputs) {
      if (!same_file(output.path, input) && !same_file(meanwhile, input)) continue;
      throw UsageError(fmt::format("--{} {} would overwrite {}, which is read. Give another name",
                                   output.flag, output.path, input));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (outputs[j].path.empty() || !same_file(output.path, outputs[j].path)) continue;
      throw UsageError(fmt::format("--{} and --{} are one file, {}. Give two names", output.flag,
                                   outputs[j].flag, output.path));
    }
    try {
      WholeFile::check(output.path);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("--{}: {}", output.flag, error.what()));
    }
  }
}

}  // namespace motley::wide
