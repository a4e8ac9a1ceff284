#include "test/support/rank_runner.h"

#include "comm/error.h"
#include "comm/local.h"

namespace motley::test {

void run_ranks(int size, const RankBody& body, const Options& options) {
  run_local(size, body, options);
}

void run_ranks_on(const std::string& transport, int size, const RankBody& body,
                  const Options& options) {
  if (transport == "inproc") return run_ranks(size, body, options);
  throw Error(ErrorCode::kInvalid, "run_ranks_on: there is no transport '" + transport + "'.");
}

std::vector<std::string> transports() { return {"inproc"}; }

}  // namespace motley::test
