// How well both classifiers tell digits that they were not trained on, seed by seed. The validation
// images are what their options are chosen by; the test images are for after that.
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <vector>

#include "comm/clock.h"
#include "test/runtime/digits_training.h"

DEFINE_string(digits, "examples/data/digits.csv", "the images");
DEFINE_int32(seeds, 8, "seeds 1 to this");
DEFINE_int32(workers, 1, "as threads");
DEFINE_bool(test, false, "tell the test images, too");
DEFINE_string(model, "", "mlp or convolutional; both if empty");
DEFINE_int32(epochs, 0, "instead of the classifier's own");
DEFINE_double(rate, 0, "likewise");
DEFINE_double(l2, -1, "likewise");
DEFINE_int32(shift, -1, "likewise");
DEFINE_int32(batch, 0, "likewise");
DEFINE_int32(micro_batches, 0, "likewise");

namespace motley::runtime {
namespace {

Classifier with_flags(Classifier classifier) {
  if (FLAGS_epochs > 0) classifier.epochs = FLAGS_epochs;
  if (FLAGS_rate > 0) classifier.learning_rate = FLAGS_rate;
  if (FLAGS_l2 >= 0) classifier.l2 = FLAGS_l2;
  if (FLAGS_shift >= 0) classifier.shift = FLAGS_shift;
  if (FLAGS_batch > 0) classifier.batch = FLAGS_batch;
  if (FLAGS_micro_batches > 0) classifier.micro_batches = FLAGS_micro_batches;
  return classifier;
}

void measure(const Classifier& classifier, const Split& digits) {
  fmt::print("{}: {} epochs of {} images, batches of {}, rate {}, l2 {}, shifts by {}\n",
             classifier.name, classifier.epochs, digits.train.size(), classifier.batch,
             classifier.learning_rate, classifier.l2, classifier.shift);
  double least = 1;
  const TimePoint start = Clock::real().now();
  for (int seed = 1; seed <= FLAGS_seeds; ++seed) {
    const Trained trained =
        train_digits<float>(FLAGS_workers, {.digits = digits,
                                            .classifier = classifier,
                                            .seed = static_cast<std::uint64_t>(seed),
                                            .autosave = {}});
    const double told = FLAGS_test ? trained.test : trained.validation;
    fmt::print("  seed {}: last loss {:.5f}, validation {:.4f}", seed, trained.losses.back(),
               trained.validation);
    fmt::print("{}\n", FLAGS_test ? fmt::format(", test {:.4f}", trained.test) : "");
    least = std::min(least, told);
  }
  fmt::print("  least {:.4f}; {:.1f} s a seed\n", least,
             to_seconds(Clock::real().now() - start) / FLAGS_seeds);
}

}  // namespace
}  // namespace motley::runtime

int main(int argc, char** argv) {
  using namespace motley::runtime;
  gflags::SetUsageMessage("how well the classifiers tell digits, seed by seed");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    const Split digits = split_every(read_images(FLAGS_digits, kDigits), 6);
    for (const Classifier& classifier : {kMlp, kConvolutional}) {
      if (FLAGS_model.empty() || FLAGS_model == classifier.name)
        measure(with_flags(classifier), digits);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "digits_perf: {}\n", error.what());
    return 1;
  }
}
