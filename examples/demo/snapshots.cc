#include "examples/demo/snapshots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

#include "comm/error.h"

namespace demo {
namespace {

template <class T>
void write(std::ofstream& file, const T* values, std::size_t count) {
  file.write(reinterpret_cast<const char*>(values),
             static_cast<std::streamsize>(count * sizeof(T)));
}

template <class T>
void read(std::ifstream& file, T* values, std::size_t count) {
  file.read(reinterpret_cast<char*>(values), static_cast<std::streamsize>(count * sizeof(T)));
}

}  // namespace

void Snapshots::add(double seconds, std::span<const float> weights) {
  size_ = weights.size();
  seconds_.push_back(seconds);
  weights_.insert(weights_.end(), weights.begin(), weights.end());
}

std::span<const float> Snapshots::at(double seconds) const {
  const auto after = std::upper_bound(seconds_.begin(), seconds_.end(), seconds);
  const auto index =
      static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - seconds_.begin(), 1));
  return std::span(weights_).subspan((index - 1) * size_, size_);
}

void Snapshots::save(const std::string& path) const {
  std::ofstream file(path, std::ios::binary);
  const std::uint64_t header[] = {seconds_.size(), size_};
  write(file, header, 2);
  write(file, seconds_.data(), seconds_.size());
  write(file, weights_.data(), weights_.size());
  if (!file.flush()) motley::throw_errno("write " + path);
}

Snapshots Snapshots::load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t header[2] = {};
  read(file, header, 2);
  Snapshots snapshots;
  if (file) {
    snapshots.size_ = header[1];
    snapshots.seconds_.resize(header[0]);
    snapshots.weights_.resize(header[0] * header[1]);
    read(file, snapshots.seconds_.data(), snapshots.seconds_.size());
    read(file, snapshots.weights_.data(), snapshots.weights_.size());
  }
  if (!file || snapshots.empty()) {
    throw motley::Error(motley::ErrorCode::kIo, fmt::format("{}: cut short or empty.", path));
  }
  return snapshots;
}

std::vector<float> mean_at(const std::vector<Snapshots>& workers, double seconds) {
  std::vector<double> sum;
  for (const Snapshots& worker : workers) {
    const std::span<const float> weights = worker.at(seconds);
    sum.resize(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) sum[i] += weights[i];
  }
  std::vector<float> mean(sum.size());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    mean[i] = static_cast<float>(sum[i] / static_cast<double>(workers.size()));
  }
  return mean;
}

}  // namespace demo
