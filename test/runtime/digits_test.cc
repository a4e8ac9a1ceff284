// Shows that both classifiers learn handwritten digits, and that four workers which all-reduce
// gradients and batch statistics make the steps of one worker; ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "comm/local.h"
#include "runtime/bucket.h"
#include "runtime/cross_entropy.h"
#include "runtime/images.h"
#include "runtime/learning_rate.h"
#include "runtime/model.h"
#include "runtime/optimizer.h"
#include "runtime/sharding.h"
#include "runtime/state.h"
#include "test/support/errors.h"
#include "test/support/temporary_folder.h"

namespace motley::runtime {
namespace {

using test::expect_error;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Le;

const ImagesFormat kDigits = {.shape = {1, 8, 8}, .classes = 10, .largest = 16};

// --- Training ---------------------------------------------------------------------------------

struct Classifier {
  const char* name;
  std::vector<LayerOptions> layers;
  int epochs;
  double learning_rate;  // falls to 0 over the epochs
};

struct Trained {
  std::vector<double> losses;    // of each global batch
  double accuracy = 0;           // of the images that are not trained on
  std::vector<std::byte> state;  // the model, running means and variances
};

// One step on this worker's part of a global batch; the loss of the whole.
template <class T>
double step(Communicator& comm, Model<T>& model, Buckets& buckets, const Images& batch,
            double share) {
  const std::vector<T> pixels(batch.pixels.begin(), batch.pixels.end());
  std::vector<T> d_scores(batch.size() * model.output().count());
  const auto scores = model.forward(pixels, Mode::kTrain);
  const Loss loss = softmax_cross_entropy<T>(scores, batch.labels, d_scores, share);
  model.parameters().zero_gradients();
  buckets.begin(1);  // the share is in the gradients
  model.backward(d_scores,
                 [&](std::size_t first, std::size_t count) { buckets.ready(first, count); });
  buckets.wait();
  std::vector<double> whole = {loss.mean * share};
  comm.all_reduce(whole, ReduceOp::kSum).wait();
  return whole[0];
}

template <class T>
Trained train(Communicator& comm, const Classifier& classifier, const Split& digits) {
  Model<T> model(kDigits.shape, classifier.layers, {.seed = 3, .statistics = &comm});
  Buckets buckets(comm, model.parameters().gradients(), model.parameters().shapes(),
                  {.bytes = 16 << 10});
  GlobalBatches batches(
      comm.rank(), comm.size(),
      {.samples = static_cast<std::int64_t>(digits.train.size()), .batch = 32, .seed = 2});
  Sgd sgd(model.parameters().values(), {.l2 = 3e-3});
  const LearningRate rate(
      {.base = classifier.learning_rate,
       .decay = Decay::kPolynomial,
       .total_samples = classifier.epochs * static_cast<std::int64_t>(digits.train.size())});
  Trained trained;
  while (batches.epoch() < classifier.epochs) {
    sgd.set_learning_rate(rate.at(batches.counted()));
    const GlobalBatches::Part part = batches.next();
    trained.losses.push_back(
        step(comm, model, buckets, take(digits.train, part.samples), part.share));
    sgd.update(model.parameters().values(), model.parameters().gradients());
  }
  const std::vector<T> pixels(digits.test.pixels.begin(), digits.test.pixels.end());
  const auto scores = model.forward(pixels, Mode::kEvaluate);
  const Loss loss = softmax_cross_entropy<T>(scores, digits.test.labels, {});
  trained.accuracy = static_cast<double>(loss.correct) / static_cast<double>(digits.test.size());
  State state;
  model.list(state);
  for (const StateItem& item : state.items()) {
    trained.state.insert(trained.state.end(), item.data.bytes().begin(), item.data.bytes().end());
  }
  return trained;
}

template <class T>
std::vector<Trained> train_on(int workers, const Classifier& classifier) {
  const Split digits = split_every(read_images(MOTLEY_DIGITS, kDigits), 6);
  std::vector<Trained> all(static_cast<std::size_t>(workers));
  run_local(workers, [&](Communicator& comm) {
    all[static_cast<std::size_t>(comm.rank())] = train<T>(comm, classifier, digits);
  });
  return all;
}

class Digits : public ::testing::TestWithParam<Classifier> {
 protected:
  // By one worker, then by four. Returns how far their losses are apart, step by step.
  template <class T>
  std::vector<double> expect_learnt() {
    const Trained alone = train_on<T>(1, GetParam())[0];
    const std::vector<Trained> four = train_on<T>(4, GetParam());
    const auto steps = static_cast<std::size_t>(GetParam().epochs) * ((1498 + 31) / 32);
    EXPECT_EQ(alone.losses.size(), steps);
    EXPECT_GE(alone.accuracy, 0.97);
    EXPECT_GE(four[0].accuracy, 0.97);
    for (const Trained& worker : four) {
      EXPECT_EQ(worker.losses, four[0].losses);
      EXPECT_EQ(worker.state, four[0].state);
    }
    std::vector<double> apart;
    for (std::size_t i = 0; i < alone.losses.size(); ++i) {
      apart.push_back(std::abs(alone.losses[i] - four[0].losses[i]));
    }
    std::printf("accuracy %.4f by one worker, %.4f by four; losses at most %.1e apart\n",
                alone.accuracy, four[0].accuracy, *std::max_element(apart.begin(), apart.end()));
    return apart;
  }
};

TEST_P(Digits, AreLearntByFourWorkersAsByOne) {
  EXPECT_THAT(expect_learnt<double>(), Each(Le(1e-5)));
}

// In float the order of a sum may decide on which side of a ReLU's corner a value within 1e-7 of it
// lies, or which of two is the maximum. Gradients then differ by that value's part of them, and
// from there on losses part; in double no value is as near. So only of the first steps is more
// asked.
TEST_P(Digits, AreLearntInFloat) {
  std::vector<double> apart = expect_learnt<float>();
  apart.resize(2);
  EXPECT_THAT(apart, Each(Le(1e-5)));
}

INSTANTIATE_TEST_SUITE_P(Classifiers, Digits,
                         ::testing::Values(Classifier{"mlp", mlp_classifier(10), 20, 0.7},
                                           Classifier{"convolutional",
                                                      small_convolutional_classifier(10), 10, 0.3}),
                         [](const auto& one) { return one.param.name; });

// --- Statistics over workers, exactly ---------------------------------------------------------

// Gradients of the sum of the workers' losses, weighted outputs, by workers with 3, 1 and 0 rows,
// and by one with all 4.
TEST(SharedStatistics, GiveWorkersOfUnequalBatchesTheGradientsOfOne) {
  const std::vector<LayerOptions> layers = {Conv2d{.channels = 2, .padding = 1}, BatchNorm{},
                                            Relu{}, Dense{3}, BatchNorm{}};
  const ImageShape shape = {1, 3, 3};
  std::vector<double> in(4 * shape.count()), d_out(4 * 3);
  std::mt19937_64 random(7);
  for (double& x : in) x = std::normal_distribution<double>(2, 3)(random);
  for (double& d : d_out) d = std::normal_distribution<double>()(random);
  const auto run = [&](Communicator* comm, std::size_t first, std::size_t rows) {
    Model<double> model(shape, layers, {.seed = 8, .statistics = comm});
    const auto out =
        model.forward(std::span<const double>(in).subspan(first * 9, rows * 9), Mode::kTrain);
    std::vector<double> result(out.begin(), out.end());
    model.backward(std::span<const double>(d_out).subspan(first * 3, rows * 3));
    if (comm != nullptr) comm->all_reduce(model.parameters().gradients(), ReduceOp::kSum).wait();
    State state;
    model.list(state);
    const auto running = state.find("norm1.running_variance").data.as<double>();
    const auto gradients = model.parameters().gradients().as<double>();
    result.insert(result.end(), running.begin(), running.end());
    result.insert(result.end(), gradients.begin(), gradients.end());
    return result;
  };
  std::vector<double> expected = run(nullptr, 0, 4);
  run_local(3, [&](Communicator& comm) {
    const std::size_t first[] = {0, 3, 4}, rows[] = {3, 1, 0};
    const auto rank = static_cast<std::size_t>(comm.rank());
    const std::vector<double> mine = run(&comm, first[rank], rows[rank]);
    ASSERT_EQ(mine.size() + (4 - rows[rank]) * 3, expected.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const bool output = i < rows[rank] * 3;
      const double other =
          output ? expected[first[rank] * 3 + i] : expected[i + (4 - rows[rank]) * 3];
      EXPECT_NEAR(mine[i], other, 1e-12 * std::max(1.0, std::abs(other))) << "rank " << rank;
    }
  });
}

// --- The images -------------------------------------------------------------------------------

TEST(DigitImages, AreThosePublished) {
  const Images all = read_images(MOTLEY_DIGITS, kDigits);
  ASSERT_EQ(all.size(), 1797u);
  std::vector<int> of_label(10);
  for (const std::uint8_t label : all.labels) ++of_label[label];
  EXPECT_THAT(of_label, ElementsAre(178, 182, 177, 183, 181, 182, 181, 179, 174, 180));
  const auto [train, test] = split_every(all, 6);
  EXPECT_EQ(train.size(), 1498u);
  EXPECT_EQ(test.size(), 299u);
  // No image of the test is trained on, not even as a copy.
  std::vector<std::vector<float>> trained;
  for (auto at = train.pixels.begin(); at != train.pixels.end(); at += 64) {
    trained.emplace_back(at, at + 64);
  }
  std::sort(trained.begin(), trained.end());
  for (auto at = test.pixels.begin(); at != test.pixels.end(); at += 64) {
    EXPECT_FALSE(
        std::binary_search(trained.begin(), trained.end(), std::vector<float>(at, at + 64)));
  }
}

TEST(ReadImages, NamesTheLineThatIsNoImage) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "images.csv";
  const ImagesFormat format = {.shape = {1, 1, 2}, .classes = 3, .largest = 4};
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_images(path, format);
  };
  const Images images = read("0,4,2\n1,2,0");
  EXPECT_THAT(images.pixels, ElementsAre(0, 1, 0.25, 0.5));
  EXPECT_THAT(images.labels, ElementsAre(2, 0));
  EXPECT_EQ(read("").size(), 0u);
  for (const char* bad : {"0,4\n", "0,4,2,1\n", "0,4,2,\n", "0,,2\n", "a,4,2\n", "0;4;2\n", "\n",
                          "0,4 ,2\n", "0,99999999999,2\n"}) {
    expect_error(ErrorCode::kInvalid, {path + ":2: "},
                 [&] { return read(std::string("0,4,2\n") + bad); });
  }
  expect_error(ErrorCode::kInvalid, {":1: ", "pixel 1 is 5", "0 to 4"},
               [&] { return read("0,5,2"); });
  expect_error(ErrorCode::kInvalid, {":1: ", "label 3", "0 to 2"}, [&] { return read("0,4,3"); });
  expect_error(ErrorCode::kIo, {path + ".missing"},
               [&] { return read_images(path + ".missing", format); });
  test::expect_invalid([&] { return split_every(images, 1); });
  const std::vector<std::int64_t> outside = {2};
  test::expect_invalid([&] { return take(images, outside); });
}

}  // namespace
}  // namespace motley::runtime
