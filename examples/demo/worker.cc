#include "examples/demo/worker.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/options.h"
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

constexpr std::int64_t kSnapshots = 200;                      // about, in a run
constexpr std::size_t kSnapshotBytes = std::size_t{1} << 30;  // at most, in memory

struct Snapshot {
  double seconds = 0;
  std::vector<float> weights;
};

void write_json(const std::string& path, const nlohmann::json& json) {
  std::ofstream file(path);
  file << json.dump() << '\n';
  if (!file.flush()) motley::throw_errno("write " + path);
}

// Every how many rounds a model is copied.
std::int64_t snapshot_every(TrainingRun& run, int epochs) {
  const auto by_memory = static_cast<std::int64_t>(kSnapshotBytes / run.state().size_bytes());
  const std::int64_t most = std::clamp<std::int64_t>(by_memory, 1, kSnapshots);
  return std::max<std::int64_t>(run.steps_per_epoch() * epochs / most, 1);
}

nlohmann::json evaluate_all(motley::wide::Model& model, const std::vector<Snapshot>& snapshots,
                            motley::wide::Dataset test) {
  const motley::wide::Samples samples = model.prepare(std::move(test));
  nlohmann::json curve = nlohmann::json::array();
  for (const Snapshot& snapshot : snapshots) {
    std::copy(snapshot.weights.begin(), snapshot.weights.end(), model.weights().begin());
    const auto result = motley::wide::evaluate(model.scores(samples), samples.labels);
    curve.push_back({{"seconds", snapshot.seconds},
                     {"log_loss", result.log_loss},
                     {"auc", result.auc.value_or(0)}});
  }
  return curve;
}

}  // namespace

void run_worker(const Settings& settings, const WorkerTask& task) {
  Communicator comm = Communicator::join(motley::Options::from_environment());
  Data data = load(settings);
  const bool single = comm.size() == 1;
  const int epochs = single ? settings.epochs : settings.parallel_epochs;
  const double rate = single ? settings.learning_rate : settings.parallel_learning_rate;
  motley::wide::TrainOptions options{.epochs = epochs,
                                     .learning_rate = static_cast<float>(rate),
                                     .sync_rows = rows_per_step(settings, data.train.rows()),
                                     .seed = task.seed,
                                     .rank = comm.rank(),
                                     .size = comm.size()};
  options.model.factors = settings.factors;
  TrainingRun run(std::move(data.train), std::nullopt, options);

  const std::string prefix = task.prefix + "." + std::to_string(comm.rank());
  motley::runtime::MetricsLog log(prefix + ".rounds.jsonl");
  std::vector<Snapshot> snapshots;
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
    if (comm.rank() != 0 || (round.step % every != 0 && !last)) return;
    snapshots.push_back({end, {run.model().weights().begin(), run.model().weights().end()}});
  });
  trainer.run(run.state(), [&run](std::int64_t) { return run.next_step(); });
  log.flush();
  write_json(prefix + ".json", {{"rows", run.rows_trained()}, {"seconds", end}});
  if (comm.rank() == 0) {
    write_json(task.prefix + ".curve.json",
               evaluate_all(run.model(), snapshots, std::move(data.test)));
  }
}

}  // namespace demo
