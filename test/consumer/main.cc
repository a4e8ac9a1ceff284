// Uses Motley from outside: prints which build was found and cuts a buffer in two.
#include <cstdio>
#include <vector>

#include "comm/version.h"
#include "comm/view.h"

int main() {
  std::vector<float> gradients(8);
  const motley::View half = motley::View(gradients).slice(4, 4);
  std::printf("%s\nhalf of the buffer: %zu bytes\n", motley::version_text().c_str(),
              half.size_bytes());
  return half.size_bytes() == 16 ? 0 : 1;
}
