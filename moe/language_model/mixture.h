// moe/language_model/mixture.h: the mixture of a layer of the language model, as programs that an
// Executor runs: each of their operations is bound to what it does here.
//
// Experts lie as a Placement says; their rows are multiplied expert by expert in the order of
// source ranks and tokens, so that the same tokens give the same bits on any number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "moe/builder.h"
#include "moe/executor.h"
#include "moe/expert_compute.h"
#include "moe/layer_options.h"
#include "moe/placement.h"
#include "moe/plan.h"
#include "moe/routing.h"
#include "moe/timeline.h"

namespace motley::moe {

struct MixtureOptions {
  LayerOptions layer;          // sizes and activation; the gate's part is the caller's
  int degree = 1;              // chunks of the pipeline
  std::string algorithm = {};  // of the all-to-alls; empty: chosen
};

class Mixture {
 public:
  // `comm` must outlive it. Weights are 0.
  Mixture(Communicator& comm, const Placement& placement, const MixtureOptions& options);

  // An expert that is here: w1 [h, d], b1 [h], w2 [d, h], b2 [d], one after another.
  struct Expert {
    std::int32_t expert = 0;  // logical
    std::vector<float> values;
    std::vector<float> gradients;  // of the last backward()
  };
  std::vector<Expert>& experts() noexcept { return experts_; }

  // y = sum over a token's choices of weight times expert, in order of choices.
  //   x, y  [routing.tokens, d]; x must stay until backward() has returned
  void forward(std::span<const float> x, const Routing& routing, std::span<float> y);
  // In place of forward on a rank that cannot: throws `error` here, and one that names this rank on
  // those that call forward.
  [[noreturn]] void refuse(const std::exception_ptr& error);
  // Overwrites dx [tokens, d], dweight [tokens, k] and the experts' gradients.
  void backward(std::span<const float> dy, std::span<float> dx, std::span<float> dweight);

  // Of the last forward() or backward().
  const Program& program() const noexcept { return program_; }
  const Timeline& timeline() const noexcept { return timeline_; }

 private:
  // What a chunk sends, gets and keeps, [rows, d] each.
  struct Chunk {
    std::vector<std::int64_t> choice;        // of each row sent
    std::vector<std::size_t> send, receive;  // values to and from each rank
    std::vector<std::int64_t> place;         // where each row received stands among the experts'
    std::vector<ExpertSegment> segments;     // by expert of the chunk
    ChunkRange mine;
    std::vector<float> sent, received, returned, back;
    std::vector<float> x, y;  // as experts take and give them; their gradients, dx and dy
    std::vector<float> dx, dy;
    ExpertSaved saved;
  };

  void share_counts(const std::exception_ptr& error);
  void cut();
  void pack(Chunk& chunk, bool gradient);
  void exchange(const Chunk& chunk, std::span<const float> in, std::span<float> out, bool back);
  void put_in_order(Chunk& chunk, std::span<const float> received, std::span<float> ordered) const;
  void put_back(Chunk& chunk, std::span<const float> ordered, std::span<float> received) const;
  std::vector<std::span<const float>> values_of(const ChunkRange& mine) const;
  void experts_forward(Chunk& chunk);
  void experts_backward(Chunk& chunk);
  void add_up();
  void add_up_gradients();
  Program build(bool backward) const;

  Communicator& comm_;
  Placement placement_;
  MixtureOptions options_;
  std::size_t d_;
  Workers workers_;  // this thread
  ExpertCompute compute_;
  std::vector<Expert> experts_;
  Executor executor_;
  Plan plan_;
  std::vector<std::int64_t> counts_;  // [ranks, experts here], what each rank sends
  std::vector<Chunk> chunks_;
  Program program_;
  Timeline timeline_;
  // Arguments of the call under way.
  std::span<const float> x_, dy_;
  std::span<float> y_, dx_, dweight_;
};

}  // namespace motley::moe
