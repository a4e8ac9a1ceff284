#include "runtime/step/tally.h"

#include <algorithm>

#include "runtime/numeric/types.h"

namespace motley::runtime {
namespace {

constexpr std::size_t kVote = 0, kLoss = 1, kFirst = 2;

// Calls body(value, i) for each of them, as a reference to it.
template <class Body>
void for_each_value(const State& running, Body body) {
  std::size_t i = 0;
  for (const StateItem& item : running.items()) {
    with_floating(item.name.c_str(), item.data.dtype, [&]<class T>(T) {
      for (T& value : item.data.as<T>()) body(value, i++);
    });
  }
}

template <class T>
double wide(T value) {
  return static_cast<double>(static_cast<Wide<T>>(value));
}
template <class T>
T narrow(double value) {
  return static_cast<T>(static_cast<Wide<T>>(value));
}

}  // namespace

Tally::Tally(const State& running) : running_(running), columns_(kFirst) {
  for_each_value(running_, [&](auto&, std::size_t) { ++columns_; });
  begun_.resize(columns_ - kFirst);
}

void Tally::begin(int rows) {
  rows_ = static_cast<std::size_t>(rows);
  own_.assign(rows_ * columns_, 0);
  for_each_value(running_, [&](const auto& value, std::size_t i) { begun_[i] = wide(value); });
}

void Tally::add(int row, double loss, double weight) {
  double* const to = this->row(own_, static_cast<std::size_t>(row));
  to[kLoss] += loss * weight;
  for_each_value(running_,
                 [&](const auto& value, std::size_t i) { to[kFirst + i] += wide(value) * weight; });
  restore();
}

void Tally::restore() const {
  for_each_value(running_, [&]<class T>(T& value, std::size_t i) { value = narrow<T>(begun_[i]); });
}

Request Tally::gather(Communicator& comm, bool vote, const CallOptions& options) {
  own_[kVote] = vote ? 1 : 0;
  all_.resize(own_.size() * static_cast<std::size_t>(comm.size()));
  return comm.all_gather(own_, all_, options);
}

double Tally::finish() {
  const std::size_t workers = all_.size() / own_.size();
  std::vector<double> sums(columns_);
  for (std::size_t j = 0; j < rows_; ++j) {
    for (std::size_t worker = 0; worker < workers; ++worker) {
      const double* const from = row(all_, worker * rows_ + j);
      for (std::size_t i = 0; i < columns_; ++i) sums[i] += from[i];
    }
  }
  for_each_value(running_,
                 [&]<class T>(T& value, std::size_t i) { value = narrow<T>(sums[kFirst + i]); });
  any_vote_ = sums[kVote] > 0;
  return sums[kLoss];
}

}  // namespace motley::runtime
