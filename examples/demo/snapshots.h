// examples/demo/snapshots.h: copies of a worker's model over time, and what they say of all
// workers.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace demo {

// The models of one worker: weights [n] at ascending times.
class Snapshots {
 public:
  void add(double seconds, std::span<const float> weights);
  bool empty() const noexcept { return seconds_.empty(); }
  double end() const { return seconds_.back(); }
  // The model that the worker had at `seconds`: its latest copy until then, else its first.
  std::span<const float> at(double seconds) const;

  // Through a file, for the worker that evaluates. Throw motley::Error.
  void save(const std::string& path) const;
  static Snapshots load(const std::string& path);

 private:
  std::size_t size_ = 0;  // of a model
  std::vector<double> seconds_;
  std::vector<float> weights_;  // one model after another
};

// The mean of what all workers had at `seconds`: mean[i] over workers of weights[i].
std::vector<float> mean_at(const std::vector<Snapshots>& workers, double seconds);

}  // namespace demo
