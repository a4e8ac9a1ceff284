// test/runtime/checkpoint_cases.h: a small training whose state has an item of every kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/checkpoint.h"
#include "runtime/optimizer.h"
#include "runtime/parameter.h"
#include "runtime/state.h"

namespace motley::runtime {

// Shared items are the same on all workers; fewer elements than workers, and none, among them.
struct Training {
  explicit Training(int rank = 0, DType dtype = DType::kFloat32)
      : model({{"weight", {7, 3}}, {"none", {0, 5}}, {"bias", {}}}, dtype),
        adam(model.values(), {.learning_rate = 0.1, .weight_decay = 0.01}),
        counts(3, 100 * rank),
        position(rank) {
    fill([](std::size_t i) { return 1 + 0.25 * static_cast<double>(i); });
    model.list(state);
    adam.list(state);
    state.add("samples", samples, StatePolicy::kMaximum);
    state.add({"counts", {3}, counts, StatePolicy::kSum});
    state.add("position", position, StatePolicy::kKeepOwn);
  }
  Training(const Training&) = delete;

  void step(int times = 1) {
    for (int i = 0; i < times; ++i) {
      if (model.dtype() == DType::kFloat32) descend<float>();
      if (model.dtype() == DType::kFloat64) descend<double>();
      samples += 8;
      position += 10;
      counts[1] += 1;
    }
  }

  // All that is listed, one after another.
  std::vector<std::byte> bytes(bool shared_only = false) const {
    std::vector<std::byte> all;
    for (const StateItem& item : state.items()) {
      if (shared_only && !is_shared(item.policy)) continue;
      all.insert(all.end(), item.data.bytes().begin(), item.data.bytes().end());
    }
    return all;
  }

  Parameters model;
  Adam adam;
  std::int64_t samples = 0;
  std::vector<std::int64_t> counts;
  double position;
  State state;

 private:
  template <class Value>
  void fill(Value value) {
    for (std::size_t i = 0; i < model.count(); ++i) {
      if (model.dtype() == DType::kFloat32) {
        model.values().as<float>()[i] = static_cast<float>(value(i));
      } else {
        model.values().as<double>()[i] = value(i);
      }
    }
  }
  template <class T>
  void descend() {
    const auto x = model.values().as<T>();
    const auto g = model.gradients().as<T>();
    for (std::size_t i = 0; i < x.size(); ++i) g[i] = x[i] * x[i] - static_cast<T>(samples);
    adam.update(model.values(), model.gradients());
  }
};

// Saves on a worker of its own, in "folder".
inline void save_alone(FileSystem& files, const Training& training, std::int64_t step) {
  Checkpointer checkpoints("folder", {.files = &files});
  checkpoints.save(training.state, step);
  checkpoints.wait();
}

// The state after so many steps, on a worker of its own.
inline std::vector<std::byte> bytes_after(int steps, int rank = 0) {
  Training training(rank);
  training.step(steps);
  return training.bytes();
}

}  // namespace motley::runtime
