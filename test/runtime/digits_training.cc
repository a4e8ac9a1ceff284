#include "test/runtime/digits_training.h"

#include <algorithm>
#include <mutex>

#include "comm/error.h"
#include "comm/local.h"
#include "runtime/cross_entropy.h"
#include "runtime/gradient_trainer.h"
#include "runtime/model.h"
#include "runtime/optimizer.h"
#include "runtime/sharding.h"

namespace motley::runtime {
namespace {

template <class T>
double accuracy(Model<T>& model, const Images& images) {
  const std::vector<T> pixels(images.pixels.begin(), images.pixels.end());
  const auto scores = model.forward(pixels, Mode::kEvaluate);
  const Loss loss = softmax_cross_entropy<T>(scores, images.labels, {});
  return static_cast<double>(loss.correct) / static_cast<double>(images.size());
}

}  // namespace

template <class T>
Trained train_digits(Communicator& comm, const DigitsRun& run) {
  const Classifier& how = run.classifier;
  const auto samples = static_cast<std::int64_t>(run.digits.train.size());
  Model<T> model(kDigits.shape, how.layers, {.seed = run.seed});
  GlobalBatches batches(comm.rank(), comm.size(),
                        {.samples = samples,
                         .batch = how.batch,
                         .seed = run.seed,
                         .micro_batches = how.micro_batches});
  Sgd sgd(model.parameters().values(), {.l2 = how.l2, .momentum = 0.9, .nesterov = true});
  State state, running;
  batches.list(state);
  model.list_running(running);
  GradientTrainer trainer(comm, model.parameters(), sgd,
                          {.learning_rate = {.base = how.learning_rate,
                                             .decay = Decay::kCosine,
                                             .total_samples = how.epochs * samples},
                           .buckets = {.bytes = 16 << 10},
                           .micro_batches = how.micro_batches,
                           .running = running,
                           .state = state,
                           .autosave = run.autosave});
  Trained trained;
  std::vector<T> d_scores;
  while (batches.epoch() < how.epochs) {
    const std::int64_t epoch = batches.epoch();
    const GlobalBatches::Part part = batches.next();
    const auto backward = [&](const MicroBatch& micro) {
      const auto indices = part.samples.subspan(micro.first, micro.size);
      Images batch = take(run.digits.train, indices);
      shift_at_random(batch, indices, how.shift,
                      {.seed = run.seed, .purpose = "shift", .epoch = epoch});
      const std::vector<T> pixels(batch.pixels.begin(), batch.pixels.end());
      const auto scores = model.forward(pixels, Mode::kTrain);
      d_scores.resize(scores.size());
      const Loss loss = softmax_cross_entropy<T>(scores, batch.labels, d_scores, micro.weight);
      model.backward(d_scores, micro.ready);
      return loss.mean;
    };
    trained.losses.push_back(
        trainer.step({.sizes = part.sizes, .batch = part.batch}, backward).loss);
  }
  trained.validation = accuracy(model, run.digits.validation);
  trained.test = accuracy(model, run.digits.test);
  State all;
  model.list(all);
  for (const StateItem& item : all.items()) {
    trained.state.insert(trained.state.end(), item.data.bytes().begin(), item.data.bytes().end());
  }
  return trained;
}

template <class T>
Trained train_digits(int workers, const DigitsRun& run) {
  std::vector<Trained> all(static_cast<std::size_t>(workers));
  run_local(workers, [&](Communicator& comm) {
    all[static_cast<std::size_t>(comm.rank())] = train_digits<T>(comm, run);
  });
  for (const Trained& one : all) {
    if (one.losses == all[0].losses && one.state == all[0].state) continue;
    throw Error(ErrorCode::kMismatch, "train_digits: two workers have ended with unequal models.");
  }
  return all[0];
}

template Trained train_digits<float>(Communicator&, const DigitsRun&);
template Trained train_digits<float>(int, const DigitsRun&);
template Trained train_digits<double>(int, const DigitsRun&);

}  // namespace motley::runtime
