#include "examples/demo/worker.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/json.h"
#include "comm/options.h"
#include "examples/demo/snapshots.h"
#include "runtime/metrics.h"
#include "runtime/synchronizer.h"
#include "runtime/trainer.h"
#include "wide/auc.h"
#include "wide/trainer.h"

namespace demo {
namespace {

using motley::Communicator;
using motley::to_seconds;
using motley::runtime::Round;
using motley::runtime::WhenAlone;
using motley::wide::TrainingRun;

constexpr int kPoints = 120;                                  // of a curve
constexpr std::size_t kSnapshotBytes = std::size_t{1} << 28;  // at most, in memory
constexpr motley::Duration kWriteTimeout = motley::seconds(300);

void write_json(const std::string& path, const nlohmann::json& json) {
  std::ofstream file(path);
  file << motley::json_text(json) << '\n';
  if (!file.flush()) motley::throw_errno("write " + path);
}

// Every how many rounds a model is copied: always, if memory allows.
std::int64_t snapshot_every(TrainingRun& run, int epochs) {
  const std::size_t most = std::max<std::size_t>(kSnapshotBytes / run.state().size_bytes(), 1);
  const auto rounds = static_cast<std::size_t>(run.steps_per_epoch() * epochs);
  return static_cast<std::int64_t>(std::max<std::size_t>(rounds / most, 1));
}

// Log loss and AUC on `test` at equal times: of the mean of all workers' models, and log loss of
// worker 0's own. The last point is the final model, which all share.
nlohmann::json evaluate_all(motley::wide::Model& model, const std::vector<Snapshots>& workers,
                            motley::wide::Dataset test) {
  const motley::wide::Samples samples = model.prepare(std::move(test));
  const auto evaluated = [&](std::span<const float> weights) {
    std::copy(weights.begin(), weights.end(), model.weights().begin());
    return motley::wide::evaluate(model.scores(samples), samples.labels);
  };
  nlohmann::json curve = nlohmann::json::array();
  const double end = workers[0].end();
  for (int i = 1; i <= kPoints; ++i) {
    const double seconds = end * i / kPoints;
    const bool shared = workers.size() == 1 || i == kPoints;
    const auto own = evaluated(workers[0].at(seconds));
    const auto mean = shared ? own : evaluated(mean_at(workers, seconds));
    curve.push_back({{"seconds", seconds},
                     {"log_loss", mean.log_loss},
                     {"auc", mean.auc.value_or(0)},
                     {"own_log_loss", own.log_loss}});
  }
  return curve;
}

// Rank 0 reads what the others have written; returns nothing on them.
std::vector<Snapshots> gather(Communicator& comm, const Snapshots& mine,
                              const std::string& prefix) {
  const auto path = [&](int rank) { return prefix + "." + std::to_string(rank) + ".models"; };
  if (comm.rank() != 0) mine.save(path(comm.rank()));
  comm.barrier({.timeout = kWriteTimeout}).wait();
  if (comm.rank() != 0) return {};
  std::vector<Snapshots> all = {mine};
  for (int rank = 1; rank < comm.size(); ++rank) {
    all.push_back(Snapshots::load(path(rank)));
    std::filesystem::remove(path(rank));
  }
  return all;
}

}  // namespace

void run_worker(const Settings& settings, const WorkerTask& task) {
  Communicator comm = Communicator::join(motley::Options::from_environment());
  Data data = load(settings);
  const bool single = comm.size() == 1;
  const int epochs = single ? settings.epochs : settings.parallel_epochs;
  motley::wide::TrainOptions options{.epochs = epochs,
                                     .learning_rate = static_cast<float>(settings.learning_rate),
                                     .sync_rows = rows_per_step(settings, data.train.rows()),
                                     .seed = task.seed,
                                     .rank = comm.rank(),
                                     .size = comm.size()};
  options.model.factors = settings.factors;
  TrainingRun run(std::move(data.train), std::nullopt, options);

  const std::string prefix = task.prefix + "." + std::to_string(comm.rank());
  motley::runtime::MetricsLog log(prefix + ".rounds.jsonl");
  Snapshots snapshots;
  const std::int64_t every = snapshot_every(run, epochs);
  const auto synchronizer =
      motley::runtime::make_synchronizer(task.method, comm, {.group_size = settings.group_size});
  motley::runtime::Trainer trainer(comm, *synchronizer,
                                   {.slow = comm.options().slow,
                                    .base_step = motley::seconds(settings.base_step),
                                    .when_alone = WhenAlone::kStop});
  double end = 0;
  trainer.on_round([&](const Round& round) {
    log.write(round);
    end = to_seconds(round.end);
    const bool last = round.computed == round.start;
    if (round.step % every == 0 || last) snapshots.add(end, run.model().weights());
  });
  snapshots.add(0, run.model().weights());
  trainer.run(run.state(), [&run](std::int64_t) { return run.next_step(); });
  log.flush();
  write_json(prefix + ".json", {{"rows", run.rows_trained()}, {"seconds", end}});
  const std::vector<Snapshots> workers = gather(comm, snapshots, task.prefix);
  if (comm.rank() == 0) {
    write_json(task.prefix + ".curve.json",
               evaluate_all(run.model(), workers, std::move(data.test)));
  }
}

}  // namespace demo
