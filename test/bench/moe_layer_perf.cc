// How long a mixture-of-experts layer takes, forward and backward, on one rank with its own
// threads, beside its bare matrix products in the same run, and beside PyTorch where --python has
// it.
#include <cblas.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "comm/local.h"
#include "moe/expert/products.h"
#include "moe/layer.h"

DEFINE_int32(tokens, 4096, "tokens of a batch");
DEFINE_int32(width, 512, "numbers of a token");
DEFINE_int32(hidden, 2048, "numbers between an expert's linear maps");
DEFINE_int32(experts, 8, "experts");
DEFINE_int32(top_k, 2, "experts of a token");
DEFINE_int32(threads, 2, "threads that compute");
DEFINE_int32(rounds, 7, "steps that are timed");
DEFINE_string(python, "", "a python that has PyTorch; without one it is left out");

namespace {

using motley::moe::Layer;
using Floats = std::vector<float>;

double milliseconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double median(std::vector<double> times) {
  std::ranges::sort(times);
  return times[times.size() / 2];
}

Floats random_floats(std::size_t count, std::mt19937_64& random) {
  Floats numbers(count);
  for (float& x : numbers) x = static_cast<float>(random() % 2000) / 1000 - 1;
  return numbers;
}

enum class By { kLayer, kOpenBlas };  // what multiplies: what the layer uses, or OpenBLAS alone

// The products of a step and nothing else: experts are shared among threads as they come.
class BareProducts {
 public:
  BareProducts(const motley::moe::Plan& plan, By by)
      : by_(by),
        rows_(plan.send_count.begin(), plan.send_count.end()),
        d_(FLAGS_width),
        h_(FLAGS_hidden) {
    const auto d = static_cast<std::size_t>(d_), h = static_cast<std::size_t>(h_);
    first_.push_back(0);
    for (const int rows : rows_) first_.push_back(first_.back() + static_cast<std::size_t>(rows));
    narrow_.assign(first_.back() * d, 0.1f);
    narrow_out_ = narrow_;
    wide_.assign(first_.back() * h, 0.1f);
    wide_out_ = wide_;
    w1_.assign(rows_.size() * d * h, 0.1f);
    w2_ = dw1_ = dw2_ = w1_;
  }

  void run(motley::moe::Workers& workers) {
    const std::size_t experts = rows_.size();
    for (const Stage stage : {kForward1, kForward2, kBackward2, kBackward1}) {
      workers.run(experts, [&](std::size_t e) { product(stage, e); });
    }
    workers.run(2 * experts,
                [&](std::size_t i) { product(i % 2 == 0 ? kWeights1 : kWeights2, i / 2); });
  }

 private:
  enum Stage { kForward1, kForward2, kBackward2, kBackward1, kWeights1, kWeights2 };
  struct Sizes {
    int rows, columns, inner;
  };
  struct Operands {
    const float *a, *b;
    float* out;
  };
  void multiply(CBLAS_TRANSPOSE a, CBLAS_TRANSPOSE b, Sizes n, Operands o) const {
    const int a_row = a == CblasNoTrans ? n.inner : n.rows;
    const int b_row = b == CblasNoTrans ? n.columns : n.inner;
    if (by_ == By::kOpenBlas) {
      return cblas_sgemm(CblasRowMajor, a, b, n.rows, n.columns, n.inner, 1, o.a, a_row, o.b, b_row,
                         0, o.out, n.columns);
    }
    const auto size = [](int x) { return static_cast<std::size_t>(x); };
    const bool plain = a == CblasNoTrans;
    const motley::moe::expert::Product product{.rows = size(n.rows),
                                               .columns = size(n.columns),
                                               .inner = size(n.inner),
                                               .a = o.a,
                                               .a_row = plain ? size(a_row) : 1,
                                               .a_term = plain ? 1 : size(a_row),
                                               .b = o.b,
                                               .b_row = size(b_row),
                                               .out = o.out,
                                               .out_row = size(n.columns)};
    if (b == CblasTrans) return motley::moe::expert::multiply_by_transposed(product);
    motley::moe::expert::multiply(product);
  }

  void product(Stage stage, std::size_t e) {
    const int m = rows_[e];
    if (m == 0) return;
    const std::size_t narrow = first_[e] * static_cast<std::size_t>(d_);
    const std::size_t wide = first_[e] * static_cast<std::size_t>(h_);
    const std::size_t w = e * static_cast<std::size_t>(d_) * static_cast<std::size_t>(h_);
    const float *x = &narrow_[narrow], *z = &wide_[wide];
    float *y = &narrow_out_[narrow], *a = &wide_out_[wide];
    switch (stage) {
      case kForward1:
        return multiply(CblasNoTrans, CblasTrans, {m, h_, d_}, {x, &w1_[w], a});
      case kForward2:
        return multiply(CblasNoTrans, CblasTrans, {m, d_, h_}, {z, &w2_[w], y});
      case kBackward2:
        return multiply(CblasNoTrans, CblasNoTrans, {m, h_, d_}, {x, &w2_[w], a});
      case kBackward1:
        return multiply(CblasNoTrans, CblasNoTrans, {m, d_, h_}, {z, &w1_[w], y});
      case kWeights1:
        return multiply(CblasTrans, CblasNoTrans, {h_, d_, m}, {z, x, &dw1_[w]});
      case kWeights2:
        return multiply(CblasTrans, CblasNoTrans, {d_, h_, m}, {x, z, &dw2_[w]});
    }
  }

  By by_;
  std::vector<int> rows_;
  std::vector<std::size_t> first_;
  int d_, h_;
  Floats narrow_, narrow_out_, wide_, wide_out_, w1_, w2_, dw1_, dw2_;
};

// Environments to run PyTorch in, the best of which counts: as it is; with memory that is kept
// instead of given back after every step, whose page faults cost more than some products; with
// threads that sleep instead of spinning on cores that others need; and with OpenBLAS's loops for
// AVX-512, which it does not take by itself on every processor that has it.
constexpr const char* kKeep = "MALLOC_MMAP_THRESHOLD_=4294967295 MALLOC_TRIM_THRESHOLD_=4294967295";
constexpr const char* kPassive = "OMP_WAIT_POLICY=PASSIVE";
constexpr const char* kWide = "OPENBLAS_CORETYPE=SkylakeX";

struct TorchStep {
  double milliseconds = 0;
  std::string environment, note;  // what it was run in, and what it says of itself
};

// What the script says, in one environment; without note where it says nothing.
TorchStep torch_step(const std::string& environment, int threads) {
  const std::string command = fmt::format(
      "env {} {} {} --tokens {} --width {} --hidden {} --experts {} --top_k {} --threads {} "
      "--rounds {}",
      environment, FLAGS_python, MOTLEY_TORCH_LAYER, FLAGS_tokens, FLAGS_width, FLAGS_hidden,
      FLAGS_experts, FLAGS_top_k, threads, FLAGS_rounds);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 512> line{};
  if (!pipe || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return {};
  const std::string said = line.data();
  const std::size_t blank = said.find(' ');
  return {std::stod(said), fmt::format("{} threads, {}", threads, environment),
          said.substr(blank + 1, said.find('\n') - blank - 1)};
}

void compare_with_torch(double layer) {
  std::vector<std::string> environments = {""};
  for (const std::string set : {kKeep, kPassive, kWide}) {
    for (std::size_t i = environments.size(); i > 0; --i) {
      environments.push_back(environments[i - 1] + set + ' ');
    }
  }
  TorchStep best;
  for (const int threads : {1, FLAGS_threads}) {
    for (const std::string& environment : environments) {
      const TorchStep step = FLAGS_python.empty() ? TorchStep() : torch_step(environment, threads);
      if (step.note.empty()) {
        fmt::print("  PyTorch                   left out: --python names none that has it\n");
        return;
      }
      fmt::print("  PyTorch                   {:9.3f} ms, {:.2f} times the layer's, {}\n",
                 step.milliseconds, step.milliseconds / layer, step.environment);
      if (best.note.empty() || step.milliseconds < best.milliseconds) best = step;
    }
  }
  fmt::print("  PyTorch at its best       {:9.3f} ms, {:.2f} times the layer's, {} ({})\n",
             best.milliseconds, best.milliseconds / layer, best.environment, best.note);
}

void run(motley::Communicator& comm) {
  using namespace motley::moe;
  const auto placement = Placement::grid({.experts = FLAGS_experts, .ranks = 1});
  Layer layer(comm, placement,
              {.gate = {.width = FLAGS_width,
                        .experts = FLAGS_experts,
                        .top_k = FLAGS_top_k,
                        .normalize = GateNormalize::kChosen},
               .experts = {.shape = {.width = FLAGS_width, .hidden = FLAGS_hidden},
                           .threads = FLAGS_threads}});
  std::mt19937_64 random(1);
  layer.initialize(random);
  const auto numbers = static_cast<std::size_t>(FLAGS_tokens * FLAGS_width);
  const Floats x = random_floats(numbers, random), dy = random_floats(numbers, random);
  Floats y(numbers), dx(numbers);
  layer.forward({.x = x}, y);
  layer.backward(dy, dx);
  BareProducts bare(layer.experts().plan(), By::kLayer);
  BareProducts blas(layer.experts().plan(), By::kOpenBlas);
  Workers workers(FLAGS_threads);
  bare.run(workers);
  blas.run(workers);

  std::vector<double> forward, both, products, share, openblas;
  for (int round = 0; round < FLAGS_rounds; ++round) {
    products.push_back(milliseconds_of([&] { bare.run(workers); }));
    forward.push_back(milliseconds_of([&] { layer.forward({.x = x}, y); }));
    both.push_back(forward.back() + milliseconds_of([&] { layer.backward(dy, dx); }));
    share.push_back(products.back() / both.back());
    openblas.push_back(milliseconds_of([&] { blas.run(workers); }));
  }
  fmt::print("tokens {} width {} hidden {} experts {} top_k {} threads {}: medians of {}\n",
             FLAGS_tokens, FLAGS_width, FLAGS_hidden, FLAGS_experts, FLAGS_top_k, FLAGS_threads,
             FLAGS_rounds);
  fmt::print("  layer, forward            {:9.3f} ms\n", median(forward));
  fmt::print("  layer, forward, backward  {:9.3f} ms\n", median(both));
  fmt::print("  its bare products         {:9.3f} ms, {:.3f} of the layer's time\n",
             median(products), median(share));
  fmt::print("  the same by OpenBLAS      {:9.3f} ms, as {} in this process\n", median(openblas),
             openblas_get_corename());
  compare_with_torch(median(both));
}

}  // namespace

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  motley::run_local(1, run);
}
