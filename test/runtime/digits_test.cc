// Shows that both classifiers learn handwritten digits, and that any number of workers makes the
// steps of one, bit for bit; and what BatchNorm over workers computes; ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "comm/local.h"
#include "runtime/images.h"
#include "runtime/model.h"
#include "runtime/state.h"
#include "test/runtime/digits_training.h"
#include "test/support/errors.h"
#include "test/support/temporary_folder.h"

namespace motley::runtime {
namespace {

using test::expect_error;
using ::testing::ElementsAre;

// --- Training ---------------------------------------------------------------------------------

class Digits : public ::testing::TestWithParam<Classifier> {};

// All of what is promised, in one run each: what four workers do is what one does, bit for bit,
// over all steps; and both classifiers tell the digits that nobody has trained on or chosen
// anything by. Other seeds: test/bench/digits_perf.
TEST_P(Digits, AreLearntByAnyNumberOfWorkersAlike) {
  const DigitsRun run = {.digits = split_every(read_images(MOTLEY_DIGITS, kDigits), 6),
                         .classifier = GetParam(),
                         .seed = 1,
                         .autosave = {}};
  const Trained one = train_digits<float>(1, run);
  EXPECT_EQ(one.losses.size(),
            static_cast<std::size_t>(run.classifier.epochs) * ((1199 + 127) / 128));
  EXPECT_LT(one.losses.back(), one.losses.front() / 4);
  EXPECT_GE(one.test, 0.97);
  std::printf("seed 1: %.4f of the test images, last loss %.9g\n", one.test, one.losses.back());
  for (const int workers : {2, 4}) {
    const Trained many = train_digits<float>(workers, run);
    EXPECT_EQ(many.losses, one.losses) << workers << " workers";
    EXPECT_EQ(many.state, one.state) << workers << " workers";
    EXPECT_EQ(many.test, one.test) << workers << " workers";
  }
}

INSTANTIATE_TEST_SUITE_P(Classifiers, Digits, ::testing::Values(kMlp, kConvolutional),
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
  const Split digits = split_every(all, 6);
  EXPECT_EQ(digits.train.size(), 1199u);
  EXPECT_EQ(digits.validation.size(), 299u);
  EXPECT_EQ(digits.test.size(), 299u);
  // No image is in two parts, not even as a copy.
  std::set<std::vector<float>> seen;
  for (const Images& part : {digits.train, digits.validation, digits.test}) {
    for (auto at = part.pixels.begin(); at != part.pixels.end(); at += 64) {
      EXPECT_TRUE(seen.emplace(at, at + 64).second);
    }
  }
}

TEST(DigitImages, AreShiftedAlikeWhateverBatchTheyAreIn) {
  // Two channels of 2 x 3: what moves out is gone, what comes in is 0, channels do not mix.
  Images images{
      .shape = {2, 2, 3}, .pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, .labels = {0}};
  const std::vector<float> before = images.pixels;
  std::set<std::vector<float>> places;
  for (std::int64_t index = 0; index < 200; ++index) {
    images.pixels = before;
    shift_at_random(images, {&index, 1}, 1, {.seed = 4});
    places.insert(images.pixels);
    Images pair = take(images, std::vector<std::int64_t>{0, 0});
    std::ranges::copy(before, pair.pixels.begin());
    std::ranges::copy(before, pair.pixels.begin() + 12);
    const std::vector<std::int64_t> both = {index + 1, index};
    shift_at_random(pair, both, 1, {.seed = 4});
    EXPECT_TRUE(std::equal(images.pixels.begin(), images.pixels.end(), pair.pixels.begin() + 12));
  }
  EXPECT_EQ(places.size(), 9u) << "each way, and not at all";
  EXPECT_TRUE(places.contains({0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 7, 8})) << "down and to the right";
  EXPECT_TRUE(places.contains({2, 3, 0, 5, 6, 0, 8, 9, 0, 11, 12, 0})) << "to the left";
  images.pixels = before;
  shift_at_random(images, std::vector<std::int64_t>{5}, 0, {.seed = 4});
  EXPECT_EQ(images.pixels, before);
  test::expect_invalid([&] { shift_at_random(images, {}, 1, {}); });
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
  test::expect_invalid([&] { return split_every(images, 2); });
  const std::vector<std::int64_t> outside = {2};
  test::expect_invalid([&] { return take(images, outside); });
}

}  // namespace
}  // namespace motley::runtime
