// A module of libtorch, trained data-parallel on handwritten digits: gradients are summed over the
// workers where torch keeps them, without copies.
//
//   torch_digits examples/data/digits.csv                        one worker
//   motley-run -n 4 -- torch_digits examples/data/digits.csv     four
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "comm/communicator.h"
#include "runtime/images.h"
#include "runtime/sharding.h"

using namespace motley;
using namespace motley::runtime;
namespace nn = torch::nn;

namespace {

// The memory of a contiguous float tensor on the CPU.
View view_of(torch::Tensor tensor) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.dtype() == torch::kFloat && tensor.is_cpu());
  return std::span<float>(tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel()));
}

struct Digits {
  explicit Digits(Images images)
      : count(static_cast<std::int64_t>(images.size())),
        pixels(torch::from_blob(images.pixels.data(), {count, 1, 8, 8}).clone()),
        labels(torch::from_blob(images.labels.data(), count, torch::kByte).to(torch::kLong)) {}

  std::int64_t count;
  torch::Tensor pixels, labels;
};

void train(Communicator& comm, nn::Sequential& model, const Digits& digits, int epochs) {
  for (auto& parameter : model->parameters()) comm.broadcast(view_of(parameter.data()), 0).wait();
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  GlobalBatches batches(comm.rank(), comm.size(),
                        {.samples = digits.count, .batch = 32, .seed = 1});
  while (batches.epoch() < epochs) {
    const GlobalBatches::Part part = batches.next();
    const auto rows = torch::tensor(at::IntArrayRef(part.samples.data(), part.samples.size()));
    const auto scores = model->forward(digits.pixels.index_select(0, rows));
    const auto loss = torch::cross_entropy_loss(scores, digits.labels.index_select(0, rows));
    optimizer.zero_grad();
    (loss * part.share).backward();  // the sum over workers is the gradient of the global batch
    std::vector<Request> sums;
    for (auto& parameter : model->parameters()) {
      sums.push_back(comm.all_reduce(view_of(parameter.grad()), ReduceOp::kSum));
    }
    for (Request& sum : sums) sum.wait();
    optimizer.step();
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Communicator comm = Communicator::join(Options::from_environment());
  torch::set_num_threads(1);  // workers share the cores
  const Split digits =
      split_every(read_images(argv[argc - 1], {.shape = {1, 8, 8}, .largest = 16}), 6);
  nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)), nn::ReLU(),
                       nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)),
                       nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(128, 10));
  train(comm, model, Digits(digits.train), 15);
  if (comm.rank() != 0) return 0;  // all workers hold the same model now
  const Digits test(digits.test);
  const auto told = model->forward(test.pixels).argmax(1).eq(test.labels).sum().item<int>();
  std::printf("%d workers: %d of %d digits that were not trained on are told\n", comm.size(), told,
              static_cast<int>(test.count));
  return told * 100 >= test.count * 95 ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
