// test/runtime/digits_training.h: how both classifiers learn the digits of examples/data, in tests
// and benchmarks alike.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/autosave.h"
#include "runtime/images.h"
#include "runtime/layers.h"

namespace motley::runtime {

inline const ImagesFormat kDigits = {.shape = {1, 8, 8}, .classes = 10, .largest = 16};

// Chosen by the accuracy of the validation images over seeds 1 to 8 (test/bench/digits_perf).
struct Classifier {
  const char* name;
  std::vector<LayerOptions> layers;
  int epochs;
  double learning_rate;  // falls to 0 over the epochs, along a cosine
  double l2;
  int shift = 1;  // of training images, in pixels
  std::int64_t batch = 128;
  int micro_batches = 4;
};
inline const Classifier kMlp = {"mlp", mlp_classifier(10), 60, 0.1, 1e-2};
inline const Classifier kConvolutional = {"convolutional", small_convolutional_classifier(10), 40,
                                          0.1, 1e-2};

struct DigitsRun {
  Split digits;
  Classifier classifier;
  std::uint64_t seed = 1;
  AutosaveOptions autosave;
};

struct Trained {
  std::vector<double> losses;  // of each global batch
  double validation = 0;       // share of images that are told
  double test = 0;
  std::vector<std::byte> state;  // the model, running means and variances
};

// By the workers of `comm`.
template <class T>
Trained train_digits(Communicator& comm, const DigitsRun& run);
// By so many, as threads; of worker 0, after it was found that all have the same.
template <class T>
Trained train_digits(int workers, const DigitsRun& run);

}  // namespace motley::runtime
