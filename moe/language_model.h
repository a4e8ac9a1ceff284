// moe/language_model.h: a small language model of characters with a mixture of experts in each
// layer, trained by expert-parallel workers: for routing traces, checkpoints and tests of the
// whole.
//
//   const CharacterText text = read_characters({"README.md", "moe/README.md"});
//   LanguageModel model(comm, {.vocabulary = text.vocabulary()});
//   for (int step = 0; step < 200; ++step) {
//     const double loss = model.step(text.batch(model.options(), step)).loss;
//     if (comm.rank() == 0) fmt::print("{} {}\n", step, loss);
//   }
//
// Of each character and those before it the model tells the next: embeddings of a character, the
// one before and its position; per layer causal self-attention and a mixture, each behind an RMS
// normalisation and added to what passes by; scores. Every worker holds all but the experts, of
// which each holds experts / workers.
//
// The same losses on any number of workers that divides `pieces`: a batch is cut into that many
// pieces whoever has them, and their gradients are added as a binary tree, ((0 + 1) + (2 + 3)) + …;
// an expert's tokens come in the order of the batch. So the bits are the same if the machines
// compute alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "moe/layer_options.h"
#include "moe/program.h"
#include "moe/routing.h"
#include "moe/timeline.h"
#include "runtime/state.h"

namespace motley::moe {

struct LanguageModelOptions {
  int vocabulary = 0;  // different characters
  int width = 64;
  int heads = 4;     // of the attention, a divisor of width
  int hidden = 128;  // of an expert
  int layers = 2;
  int experts = 8;  // a multiple of the workers
  int top_k = 2;
  int length = 64;  // characters of a sequence
  int batch = 16;   // sequences of all workers together, a multiple of pieces
  int pieces = 8;   // a power of two, a multiple of the workers
  int degree = 1;   // chunks of the mixtures' pipeline (exchange.h)
  Activation activation = Activation::kRelu;
  double balance_scale = 0.01;  // of the loss that keeps experts evenly used (kFirstChoice)
  double learning_rate = 0.01;  // of Adam, after `warmup` steps
  int warmup = 20;
  std::uint64_t seed = 1;
};
// Throws kInvalid, naming the option, its value and its range.
void validate(const LanguageModelOptions& options);

class LanguageModel {
 public:
  // `comm` must outlive it. Throws kInvalid as validate(), and where the workers do not divide.
  LanguageModel(Communicator& comm, const LanguageModelOptions& options);
  LanguageModel(const LanguageModel&) = delete;
  LanguageModel& operator=(const LanguageModel&) = delete;
  ~LanguageModel();

  const LanguageModelOptions& options() const noexcept;

  struct Report {
    double loss = 0;     // of a character in the mean, in nats, of all workers
    double balance = 0;  // the layers' balance losses together
  };
  // One step of all workers.
  //   characters  [batch, length + 1], the same on each worker, below the vocabulary
  //   errors      kInvalid for another number of characters; what comm's calls throw
  Report step(std::span<const std::uint16_t> characters);
  // The loss alone; changes nothing.
  Report evaluate(std::span<const std::uint16_t> characters);

  // Of this worker's tokens in the last call, by layer.
  const Routing& routing(int layer) const;
  // What the mixture of a layer did last: forward or, after step(), backward.
  const Program& program(int layer) const;
  const Timeline& timeline(int layer) const;

  // All that has to be saved: parameters and moments, those of experts as kOwned, so that a
  // checkpoint (runtime/checkpoint.h) can be gone on with by another number of workers. Valid as
  // long as the model is.
  runtime::State state();
  std::int64_t steps() const noexcept;  // done

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A text as numbers of characters, most of it to learn from, its last tenth to be tested with.
class CharacterText {
 public:
  // Throws kInvalid for a text of fewer than 1,000 characters.
  explicit CharacterText(const std::string& text);

  int vocabulary() const noexcept { return static_cast<int>(symbols_.size()); }
  std::size_t size() const noexcept { return characters_.size(); }

  // Sequences from places drawn by options.seed and step.
  std::vector<std::uint16_t> batch(const LanguageModelOptions& options, std::int64_t step) const;
  // The same of the last tenth.
  std::vector<std::uint16_t> test_batch(const LanguageModelOptions& options,
                                        std::int64_t step) const;
  // What a model that knows nothing but how often each character follows each loses on
  // `characters` [n, length + 1]: counts of the text to learn from, each with 1 more.
  double bigram_loss(std::span<const std::uint16_t> characters, int length) const;

 private:
  std::vector<std::uint16_t> draw(const LanguageModelOptions& options, std::int64_t step,
                                  std::size_t first, std::size_t end) const;

  std::string symbols_;  // different characters, ascending
  std::vector<std::uint16_t> characters_;
  std::size_t learn_ = 0;  // characters to learn from
};

// All files, one after another. Throws kIo for one that cannot be read.
CharacterText read_characters(const std::vector<std::string>& paths);

}  // namespace motley::moe
