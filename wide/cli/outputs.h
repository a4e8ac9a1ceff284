// wide/cli/outputs.h: what a command will write, looked at before it reads anything.
#pragma once

#include <string>
#include <vector>

namespace motley::wide {

struct Output {
  const char* flag;
  std::string path;  // empty: it is not written
};

// Throws UsageError where an output, or the file it is until it is whole, is one of the `inputs` or
// another output, and Error (kIo) where it could not be written.
void check_outputs(const std::vector<Output>& outputs, const std::vector<std::string>& inputs);

}  // namespace motley::wide
