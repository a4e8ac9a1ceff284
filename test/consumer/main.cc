// Uses Motley from outside: prints which build was found and sums a buffer over the one rank there
// is.
#include <cstdio>
#include <vector>

#include "comm/communicator.h"
#include "comm/version.h"

int main() {
  std::printf("%s\n", motley::version_text().c_str());
  motley::Communicator comm = motley::Communicator::join({});
  std::vector<float> ones(8, 1);
  comm.all_reduce(ones, motley::ReduceOp::kSum).wait();
  return ones == std::vector<float>(8, 1) ? 0 : 1;
}
