// CTR training, data-parallel: workers train a factorization machine on the same file, each on its
// share of the rows, and average their models after every 500 rows.
//
//   06_ctr TRAIN TEST                        one worker
//   motley-run -n 4 -- 06_ctr TRAIN TEST     four
#include <cstdio>
#include <exception>

#include "comm/communicator.h"
#include "runtime/synchronizer.h"
#include "runtime/trainer.h"
#include "wide/reader.h"
#include "wide/trainer.h"

using namespace motley;

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s TRAIN TEST\n", argv[0]);
    return 2;
  }
  try {
    Communicator comm = Communicator::join(Options::from_environment());
    const wide::TrainOptions options{
        .model = {.kind = wide::ModelKind::kFm, .factors = 8},
        .epochs = 5,
        .sync_rows = 500,
        .rank = comm.rank(),
        .size = comm.size(),
    };
    wide::TrainingRun run(wide::read_file(argv[1]), wide::read_file(argv[2]), options);
    const auto synchronizer =
        runtime::make_synchronizer(comm.size() > 1 ? "all_reduce" : "none", comm, {});
    runtime::Trainer trainer(comm, *synchronizer, {.slow = comm.options().slow});
    trainer.run(run.state(), [&](std::int64_t) { return run.next_step(); });

    if (comm.rank() != 0) return 0;  // all workers hold the same model now
    const wide::Evaluation e = *run.validate();
    std::printf("%d workers, %lld steps each: test log loss %.5f, AUC %.5f\n", comm.size(),
                static_cast<long long>(run.step()), e.log_loss, e.auc.value_or(0));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
