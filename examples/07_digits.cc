// A convolutional classifier learns handwritten digits, data-parallel: each worker has a part of
// every batch, and gradients are averaged while others are still computed.
//
//   07_digits examples/data/digits.csv                        one worker
//   motley-run -n 4 -- 07_digits examples/data/digits.csv     four, which make the same steps
#include <cstdio>
#include <exception>
#include <vector>

#include "comm/communicator.h"
#include "runtime/bucket.h"
#include "runtime/cross_entropy.h"
#include "runtime/images.h"
#include "runtime/learning_rate.h"
#include "runtime/model.h"
#include "runtime/optimizer.h"
#include "runtime/sharding.h"

using namespace motley;
using namespace motley::runtime;

namespace {

void train(Communicator& comm, const Images& images, Model<float>& model, int epochs) {
  const auto samples = static_cast<std::int64_t>(images.size());
  GlobalBatches batches(comm.rank(), comm.size(), {.samples = samples, .batch = 32, .seed = 2});
  Buckets buckets(comm, model.parameters().gradients(), model.parameters().shapes(), {});
  Sgd sgd(model.parameters().values(), {.l2 = 3e-3});
  const LearningRate rate(
      {.base = 0.3, .decay = Decay::kPolynomial, .total_samples = epochs * samples});
  std::vector<float> d_scores;
  while (batches.epoch() < epochs) {
    sgd.set_learning_rate(rate.at(batches.counted()));
    const GlobalBatches::Part part = batches.next();
    const Images batch = take(images, part.samples);
    d_scores.resize(batch.size() * model.output().count());
    const auto scores = model.forward(batch.pixels, Mode::kTrain);
    softmax_cross_entropy<float>(scores, batch.labels, d_scores, part.share);

    model.parameters().zero_gradients();
    buckets.begin(1);  // the sum: shares are in the gradients
    model.backward(d_scores,
                   [&](std::size_t first, std::size_t count) { buckets.ready(first, count); });
    buckets.wait();
    sgd.update(model.parameters().values(), model.parameters().gradients());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIGITS.CSV\n", argv[0]);
    return 2;
  }
  try {
    Communicator comm = Communicator::join(Options::from_environment());
    const Images all = read_images(argv[1], {.shape = {1, 8, 8}, .classes = 10, .largest = 16});
    const Split digits = split_every(all, 6);
    Model<float> model(all.shape, small_convolutional_classifier(10),
                       {.seed = 3, .statistics = &comm});
    train(comm, digits.train, model, 10);

    if (comm.rank() != 0) return 0;  // all workers hold the same model now
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
