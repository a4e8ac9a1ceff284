// runtime/state.h: one list of everything that a worker shares, saves or hands to a joiner. What
// checkpoints (checkpoint.h), joining and averaging go by, so that none of them forgets anything.
//
//   State state;
//   model.list(state);                        // parameters, running means and variances
//   optimizer.list(state);                    // moments, step counters
//   state.add("samples", samples, StatePolicy::kMaximum);
//   for (const StateItem& item : state.items()) …
//
// The memory is borrowed: it must stay where it is as long as the list is in use.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/view.h"

namespace motley::runtime {

// How the values of several workers become one, and what a worker that joins begins with.
enum class StatePolicy : std::uint8_t {
  kAverage,  // the mean; a joiner takes it. Parameters, moments, running means and variances
  kMaximum,  // the largest; a joiner takes it. Step counters
  kSum,      // each worker has a part of a total; a joiner begins with 0. Samples counted
  kKeepOwn,  // each worker has its own, which no other needs
  kOwned,    // some workers have it, as the experts of a mixture; the others list it without data
};

const char* name(StatePolicy policy) noexcept;

// kAverage and kMaximum: the workers hold copies of one value, equal wherever they have averaged.
// Else each holds what is its own.
constexpr bool is_shared(StatePolicy policy) noexcept {
  return policy == StatePolicy::kAverage || policy == StatePolicy::kMaximum;
}

struct StateItem {
  std::string name;
  std::vector<std::size_t> shape;  // none: a scalar
  View data;                       // [product of shape], borrowed; [0], but its dtype, if not here
  StatePolicy policy = StatePolicy::kAverage;
  // Of variances: the item with the means of the same values. They come out as the variance of all
  // workers' values together, mean(v + m^2) - mean(m)^2. Both of kAverage, alike in shape and
  // dtype.
  std::string mean = {};
};
// All but the data, for messages and checksums: "weight" float32 [7, 3] average.
std::string to_text(const StateItem& item);

class State {
 public:
  // Throws kInvalid for an empty name, one that is in the list, and a shape that is not `data`'s
  // count, unless the item is kOwned and has none.
  void add(StateItem item);
  // A scalar: float, double or one of the integers that DType has.
  template <class T>
  requires std::integral<T> || std::floating_point<T>
  void add(std::string name, T& scalar, StatePolicy policy) {
    add({std::move(name), {}, View(std::span<T>(&scalar, 1)), policy});
  }
  // The items of `other`, each named `prefix` and its name: for two models or optimizers of one
  // kind.
  void append(std::string_view prefix, const State& other);

  // In the order in which they were added, which is the same on all workers.
  const std::vector<StateItem>& items() const noexcept { return items_; }
  // Throws kInvalid, listing the names there are.
  const StateItem& find(std::string_view name) const;
  std::size_t size_bytes() const noexcept;  // of all items

 private:
  std::vector<StateItem> items_;
};

}  // namespace motley::runtime
