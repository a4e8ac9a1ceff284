// A multi-layer perceptron learns handwritten digits, data-parallel: each worker has a part of
// every batch. One worker, two and four make the same steps, bit for bit.
//
//   07_digits examples/data/digits.csv                          one worker
//   motley-run -n 4 -- 07_digits examples/data/digits.csv       four
//   motley-run -n 4 -- 07_digits examples/data/digits.csv run   saves, goes on from what is saved
#include <cstdio>
#include <exception>
#include <vector>

#include "comm/communicator.h"
#include "runtime/cross_entropy.h"
#include "runtime/gradient_trainer.h"
#include "runtime/images.h"
#include "runtime/model.h"
#include "runtime/optimizer.h"
#include "runtime/sharding.h"

using namespace motley;
using namespace motley::runtime;

namespace {

void train(Communicator& comm, const Images& images, Model<float>& model, const char* folder) {
  const std::int64_t samples = std::ssize(images.labels), epochs = 60;
  GlobalBatches batches(comm.rank(), comm.size(),
                        {.samples = samples, .batch = 128, .seed = 1, .micro_batches = 4});
  Sgd sgd(model.parameters().values(), {.l2 = 1e-2, .momentum = 0.9, .nesterov = true});
  GradientTrainerOptions options{
      .learning_rate = {.base = 0.1, .decay = Decay::kCosine, .total_samples = epochs * samples},
      .micro_batches = 4};
  model.list_running(options.running);
  batches.list(options.state);
  options.autosave = {.folder = folder, .every_steps = 50};
  GradientTrainer trainer(comm, model.parameters(), sgd, options);
  if (trainer.resumed() && comm.rank() == 0)
    std::printf("going on from %s\n", to_text(*trainer.resumed()).c_str());

  std::vector<float> d_scores;
  while (batches.epoch() < epochs) {
    const std::int64_t epoch = batches.epoch();
    const GlobalBatches::Part part = batches.next();
    trainer.step({.sizes = part.sizes, .batch = part.batch}, [&](const MicroBatch& micro) {
      const auto indices = part.samples.subspan(micro.first, micro.size);
      Images batch = take(images, indices);
      shift_at_random(batch, indices, 1, {.seed = 1, .purpose = "shift", .epoch = epoch});
      const auto scores = model.forward(batch.pixels, Mode::kTrain);
      d_scores.resize(scores.size());
      const Loss loss = softmax_cross_entropy<float>(scores, batch.labels, d_scores, micro.weight);
      model.backward(d_scores, micro.ready);
      return loss.mean;
    });
  }
  trainer.save();
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: %s DIGITS.CSV [FOLDER]\n", argv[0]);
    return 2;
  }
  try {
    Communicator comm = Communicator::join(Options::from_environment());
    const Images all = read_images(argv[1], {.shape = {1, 8, 8}, .classes = 10, .largest = 16});
    const Split digits = split_every(all, 6);
    Model<float> model(all.shape, mlp_classifier(10), {.seed = 1});
    train(comm, digits.train, model, argc == 3 ? argv[2] : "");

    if (comm.rank() != 0) return 0;  // all workers hold the same model
    const auto scores = model.forward(digits.test.pixels, Mode::kEvaluate);
    const Loss loss = softmax_cross_entropy<float>(scores, digits.test.labels, {});
    std::printf("%d workers: %zu of %zu digits that were not trained on are told\n", comm.size(),
                loss.correct, digits.test.size());
    return loss.correct * 100 >= digits.test.size() * 97 ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
