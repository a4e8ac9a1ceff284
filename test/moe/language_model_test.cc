// The language model: gradients of its dense parts (expert_layer_test has the others), and that any
// number of workers makes the same steps, also those that go on from another's checkpoint. What
// is named Learns has a label of its own: it takes minutes.
#include "moe/language_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <set>

#include "comm/local.h"
#include "moe/checkpoint.h"
#include "moe/language_model/dense.h"
#include "moe/trace.h"
#include "runtime/checkpoint.h"
#include "test/support/errors.h"
#include "test/support/temporary_folder.h"

namespace motley::moe {
namespace {

using test::expect_error;
using test::expect_invalid;

// --- Parts ---------------------------------------------------------------------------------------

// In place of the mixture each layer adds half of what it gets.
double through(const DenseLayout& layout, DensePiece<double>& piece, std::span<const double> values,
               const std::vector<std::uint16_t>& in, const std::vector<std::uint16_t>& out) {
  piece.embed(values, in);
  for (std::size_t layer = 0; layer < layout.shape().layers; ++layer) {
    std::vector<double> y;
    for (const double x : piece.attend(values, layer)) y.push_back(x / 2);
    piece.add_mixture(y);
  }
  return piece.loss(values, out);
}

TEST(DensePiece, HasTheGradientsThatDifferencesShow) {
  const DenseLayout layout(
      {.vocabulary = 5, .width = 6, .heads = 2, .length = 4, .layers = 2, .experts = 3});
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values(layout.count()), gradients(layout.count());
  for (double& value : values) value = uniform(random);
  const std::vector<std::uint16_t> in = {0, 1, 2, 1, 4, 3, 3, 0}, out = {1, 2, 1, 4, 3, 3, 0, 2};
  DensePiece<double> piece(layout, 2);
  through(layout, piece, values, in, out);
  piece.start_backward(values, gradients, 0.25);
  for (std::size_t layer = 2; layer-- > 0;) {
    std::vector<double> dmixture;
    for (const double dy : piece.mixture_gradient()) dmixture.push_back(dy / 2);
    piece.attend_backward(values, gradients, layer, dmixture);
  }
  piece.embed_backward(gradients);
  for (const DensePlace& place : layout.places()) {
    if (place.name.ends_with("gate")) continue;  // the caller's
    for (std::size_t i = place.first; i < place.first + place.count; ++i) {
      constexpr double kStep = 1e-6;
      const double before = values[i];
      values[i] = before + kStep;
      const double above = through(layout, piece, values, in, out);
      values[i] = before - kStep;
      const double below = through(layout, piece, values, in, out);
      values[i] = before;
      EXPECT_NEAR(gradients[i], 0.25 * (above - below) / (2 * kStep), 1e-7)
          << place.name << " " << i;
    }
  }
}

// --- The whole -----------------------------------------------------------------------------------

CharacterText documentation() {
  const std::string root = MOTLEY_DOCUMENTATION;
  return read_characters({root + "/README.md", root + "/comm/README.md",
                          root + "/runtime/README.md", root + "/wide/README.md",
                          root + "/moe/README.md"});
}

LanguageModelOptions small(const CharacterText& text) {
  return {.vocabulary = text.vocabulary(),
          .width = 16,
          .heads = 2,
          .hidden = 24,
          .length = 12,
          .batch = 8,
          .warmup = 0};
}

// The losses of `steps` steps on so many workers, those that rank 0 sees.
std::vector<double> losses(int workers, const CharacterText& text,
                           const LanguageModelOptions& options, int steps) {
  std::vector<double> losses;
  run_local(workers, [&](Communicator& comm) {
    LanguageModel model(comm, options);
    for (int step = 0; step < steps; ++step) {
      const double loss = model.step(text.batch(options, step)).loss;
      if (comm.rank() == 0) losses.push_back(loss);
    }
  });
  return losses;
}

TEST(LanguageModel, MakesTheSameStepsOnAnyNumberOfWorkersAndChunks) {
  const CharacterText text = documentation();
  LanguageModelOptions options = small(text);
  const std::vector<double> one = losses(1, text, options, 8);
  EXPECT_LT(one.back(), one.front() - 0.3);
  for (const int workers : {2, 4, 8}) {
    options.degree = workers == 2 ? 2 : 1;
    const std::vector<double> others = losses(workers, text, options, 8);
    for (std::size_t step = 0; step < 8; ++step)
      EXPECT_NEAR(others[step], one[step], 1e-5) << workers << " workers, step " << step;
  }
}

std::vector<std::byte> bytes_of(const runtime::State& state, const std::string& name) {
  const auto bytes = state.find(name).data.bytes();
  return {bytes.begin(), bytes.end()};
}

// Scenario 39: what is saved of each expert is that expert's, whoever had it.
TEST(LanguageModel, GoesOnFromACheckpointOfAnotherNumberOfWorkersScenario39) {
  const CharacterText text = documentation();
  const LanguageModelOptions options = small(text);
  const std::vector<double> all = losses(1, text, options, 5);
  const test::TemporaryFolder folder;
  run_local(4, [&](Communicator& comm) {
    LanguageModel model(comm, options);
    for (int step = 0; step < 3; ++step) model.step(text.batch(options, step));
    runtime::Checkpointer checkpoints(folder.path(), comm);
    checkpoints.save(model.state(), model.steps());
    checkpoints.wait();
  });
  for (const int workers : {1, 2, 8}) {
    run_local(workers, [&](Communicator& comm) {
      LanguageModel model(comm, options);
      const runtime::State state = model.state();
      ASSERT_TRUE(runtime::Checkpointer(folder.path(), comm).load(state));
      EXPECT_EQ(model.steps(), 3);
      if (workers == 1) {
        std::set<std::vector<std::byte>> weights, moments;
        for (int layer = 0; layer < 2; ++layer) {
          for (int expert = 0; expert < 8; ++expert) {
            const std::string name =
                "layer." + std::to_string(layer) + ".expert." + std::to_string(expert) + ".";
            weights.insert(bytes_of(state, name + "weights"));
            moments.insert(bytes_of(state, name + "adam.moment1"));
          }
        }
        EXPECT_EQ(weights.size(), 16u);
        EXPECT_EQ(moments.size(), 16u);
      }
      for (int step = 3; step < 5; ++step) {
        EXPECT_NEAR(model.step(text.batch(options, step)).loss, all[static_cast<std::size_t>(step)],
                    1e-5)
            << workers << " workers";
      }
    });
  }
}

TEST(LanguageModel, RecordsTheSameTraceOnAnyNumberOfWorkers) {
  const CharacterText text = documentation();
  const LanguageModelOptions options = small(text);
  const TraceHeader header{.experts = 8, .layers = 2, .top_k = 2};
  const test::TemporaryFolder folder;
  for (const int workers : {1, 4}) {
    run_local(workers, [&](Communicator& comm) {
      LanguageModel model(comm, options);
      std::optional<TraceWriter> trace;
      if (comm.rank() == 0) trace.emplace(folder / std::to_string(workers), header);
      for (int step = 0; step < 3; ++step) {
        model.step(text.batch(options, step));
        for (int layer = 0; layer < 2; ++layer) {
          const auto experts = gathered(comm, model.routing(layer));
          if (trace) trace->write({step, layer, experts});
        }
      }
      if (trace) trace->close();
    });
  }
  const Trace one = read_trace(folder / "1");
  EXPECT_EQ(one.header, header);
  ASSERT_EQ(one.records.size(), 6u);
  EXPECT_EQ(one.records[5].step, 2);
  EXPECT_EQ(one.records[5].layer, 1);
  EXPECT_EQ(one.records[0].expert.size(), 2u * 8 * 12);
  EXPECT_EQ(read_trace(folder / "4").records, one.records);
  std::int64_t total = 0;
  for (const std::int64_t load : loads(header, one.records[0])) total += load;
  EXPECT_EQ(total, 2 * 8 * 12);
}

TEST(Trace, RefusesWhatIsCutDamagedOrForeign) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "trace";
  TraceWriter writer(path, {.experts = 4, .layers = 1, .top_k = 2});
  expect_error(ErrorCode::kInvalid, {"expert 4", "of 4"}, [&] { writer.write({0, 0, {0, 4}}); });
  expect_error(ErrorCode::kInvalid, {"layer 1"}, [&] { writer.write({0, 1, {0, 1}}); });
  writer.write({7, 0, {0, 3, kNoExpert, 2}});
  writer.write({8, 0, {1, 2}});
  writer.close();
  std::ifstream file(path, std::ios::binary);
  const std::string good(std::istreambuf_iterator<char>(file), {});
  ASSERT_EQ(read_trace(path).records.size(), 2u);
  ASSERT_EQ(read_trace(path).records.at(0).expert, (std::vector<std::int32_t>{0, 3, -1, 2}));
  const auto refuses = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    expect_invalid([&] { read_trace(path); });
  };
  for (std::size_t size = 0; size < good.size(); ++size) refuses(good.substr(0, size));
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    refuses(bad);
  }
  refuses(good + good.substr(good.find("end\n")));
}

// Records that are whole, under the header of a smaller trace, which is whole too.
TEST(Trace, RefusesExpertsAndLayersThatTheHeaderDoesNotHave) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "trace";
  const auto content = [&](const TraceHeader& header, const std::vector<TraceRecord>& records) {
    TraceWriter writer(path, header);
    for (const TraceRecord& record : records) writer.write(record);
    writer.close();
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const TraceHeader large{.experts = 9, .layers = 2, .top_k = 1};
  const TraceHeader small{.experts = 4, .layers = 1, .top_k = 1};
  const std::string head = content(small, {});
  for (const TraceRecord& record : {TraceRecord{0, 0, {8}}, TraceRecord{0, 1, {0}}}) {
    const std::string whole = content(large, {record});
    std::ofstream(path, std::ios::binary)
        << head.substr(0, head.find("end\n")) << whole.substr(whole.find("rec\n"));
    expect_error(ErrorCode::kInvalid, {"record 0", "header does not have"},
                 [&] { read_trace(path); });
  }
  expect_error(ErrorCode::kInvalid, {"expert 8 of 4"}, [&] { (void)loads(small, {0, 0, {8}}); });
  expect_error(ErrorCode::kInvalid, {"expert -2 of 4"}, [&] { (void)loads(small, {0, 0, {-2}}); });
}

TEST(Experts, AreListedOnceEachByTheirNumber) {
  std::vector<float> weights(3);
  runtime::State items;
  items.add({"weights", {3}, View(weights), runtime::StatePolicy::kAverage});
  runtime::State state;
  list_experts(state, {"layer.0.", 2, items}, std::vector<ExpertState>{{1, items}});
  EXPECT_EQ(state.find("layer.0.expert.0.weights").data.count, 0u);
  EXPECT_EQ(state.find("layer.0.expert.1.weights").data.count, 3u);
  expect_error(ErrorCode::kInvalid, {"expert 2 of 2"}, [&] {
    list_experts(state, {"a.", 2, items}, std::vector<ExpertState>{{2, items}});
  });
  expect_error(ErrorCode::kInvalid, {"twice"}, [&] {
    list_experts(state, {"a.", 2, items}, std::vector<ExpertState>{{1, items}, {1, items}});
  });
}

TEST(LanguageModel, RefusesWhatDoesNotFit) {
  const CharacterText text = documentation();
  run_local(3, [&](Communicator& comm) {
    expect_error(ErrorCode::kInvalid, {"3 workers"}, [&] { LanguageModel(comm, small(text)); });
  });
  run_local(1, [&](Communicator& comm) {
    LanguageModelOptions options = small(text);
    LanguageModel model(comm, options);
    expect_invalid([&] { model.step(std::vector<std::uint16_t>(5)); });
    expect_invalid([&] { model.routing(2); });
    options.learning_rate = -1;
    expect_error(ErrorCode::kInvalid, {"learning_rate is -1"},
                 [&] { LanguageModel(comm, options); });
    options = small(text);
    options.batch = 1 << 30;
    expect_error(ErrorCode::kInvalid, {"batch is 1073741824"},
                 [&] { LanguageModel(comm, options); });
    options = small(text);
    options.pieces = 3;
    expect_error(ErrorCode::kInvalid, {"pieces", "3"}, [&] { LanguageModel(comm, options); });
  });
}

// What one worker cannot route is an error on all, at once.
TEST(LanguageModel, ANumberThatIsNoneOnOneWorkerStopsAll) {
  const CharacterText text = documentation();
  const LanguageModelOptions options = small(text);
  run_local(2, [&](Communicator& comm) {
    LanguageModel model(comm, options);
    const runtime::State state = model.state();
    const View tokens = state.find("token").data;
    if (comm.rank() == 1) {
      const std::vector<float> nan(tokens.count, std::numeric_limits<float>::quiet_NaN());
      std::memcpy(tokens.bytes().data(), nan.data(), tokens.bytes().size());
    }
    try {
      model.step(text.batch(options, 0));
      ADD_FAILURE() << "no error on " << comm.rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalid) << error.what();
      if (comm.rank() == 0) {
        EXPECT_THAT(error.ranks(), testing::ElementsAre(1)) << error.what();
      }
    }
  });
}

// --- Minutes -------------------------------------------------------------------------------------

// 200 steps on 1, 2, 4 and 8 workers: one curve, which ends below what counts of pairs tell of text
// that nobody has learnt from.
TEST(LanguageModel, LearnsMoreThanPairsOnAnyNumberOfWorkers) {
  const CharacterText text = documentation();
  const LanguageModelOptions options{.vocabulary = text.vocabulary()};
  const std::vector<std::uint16_t> unseen = text.test_batch(options, 0);
  std::vector<double> one;
  for (const int workers : {1, 2, 4, 8}) {
    std::vector<double> curve;
    double test_loss = 0;
    run_local(workers, [&](Communicator& comm) {
      LanguageModel model(comm, options);
      std::vector<double> mine;
      for (int step = 0; step < 200; ++step)
        mine.push_back(model.step(text.batch(options, step)).loss);
      const double loss = model.evaluate(unseen).loss;
      if (comm.rank() != 0) return;
      curve = mine;
      test_loss = loss;
    });
    if (one.empty()) one = curve;
    double most = 0;
    for (std::size_t step = 0; step < 200; ++step)
      most = std::max(most, std::abs(curve[step] - one[step]));
    std::printf(
        "%d workers: loss %.4f to %.4f, at most %.2g from one worker's; unseen %.4f, pairs "
        "%.4f\n",
        workers, curve.front(), curve.back(), most, test_loss,
        text.bigram_loss(unseen, options.length));
    std::fflush(stdout);
    EXPECT_LE(most, 1e-4) << workers << " workers";
    EXPECT_LT(test_loss, text.bigram_loss(unseen, options.length)) << workers << " workers";
  }
}

}  // namespace
}  // namespace motley::moe
