#include "comm/version.h"

#include <string_view>

namespace motley {

std::string version_text() {
  // The names in capitals are strings that CMakeLists.txt defines for this file.
  const std::string_view commit = MOTLEY_COMMIT;
  std::string text = MOTLEY_VERSION;
  text.append(commit.empty() ? ", commit unknown" : ", commit ").append(commit);
  text.append("\nUCX ").append(MOTLEY_UCX_TEXT);
  text.append("\nCUDA ").append(MOTLEY_CUDA_TEXT);
  text.append("\nNCCL ").append(MOTLEY_NCCL_TEXT);
  text.append("\nHWLOC ").append(MOTLEY_HWLOC_TEXT);
  text.append("\nOPENBLAS ").append(MOTLEY_OPENBLAS_TEXT);
  return text;
}

}  // namespace motley
