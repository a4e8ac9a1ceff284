#include "runtime/state_sync.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "comm/error.h"
#include "runtime/numeric/second_moment.h"
#include "runtime/numeric/types.h"

namespace motley::runtime {
namespace {

constexpr std::size_t kDigitBytes = 2;

std::size_t digits_of(const StateItem& item) {
  return (item.data.size_bytes() + kDigitBytes - 1) / kDigitBytes;
}

bool is_mean(const StateItem& item) { return item.policy == StatePolicy::kAverage; }
bool is_maximum(const StateItem& item) { return item.policy == StatePolicy::kMaximum; }

// out[i] = in[i] in out's type.
void cast(View out, ConstView in) {
  with_floating("state_sync", in.dtype, [&]<class In>(In) {
    with_floating("state_sync", out.dtype, [&]<class Out>(Out) {
      std::transform(in.as<const In>().begin(), in.as<const In>().end(), out.as<Out>().begin(),
                     [](In x) { return static_cast<Out>(static_cast<Wide<In>>(x)); });
    });
  });
}

// The larger of each pair, by the type of `dtype`.
void take_larger(View to, const std::byte* other) {
  with_type(to.dtype, [&]<class T>(T) {
    const auto values = to.as<T>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      T theirs;
      std::memcpy(&theirs, other + i * sizeof(T), sizeof(T));
      using Compared = std::conditional_t<std::is_integral_v<T>, T, Wide<T>>;
      if (static_cast<Compared>(values[i]) < static_cast<Compared>(theirs)) values[i] = theirs;
    }
  });
}

void check_item(const State& state, const StateItem& item) {
  if (item.data.memory == Memory::kDevice) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("state_sync: \"{}\" lies in device memory. List host memory.", item.name));
  }
  if (is_mean(item)) with_floating("state_sync", item.data.dtype, [](auto) {});
  if (item.mean.empty()) return;
  const StateItem& mean = state.find(item.mean);
  if (is_mean(item) && is_mean(mean) && mean.data.count == item.data.count &&
      mean.data.dtype == item.data.dtype && mean.mean.empty()) {
    return;
  }
  throw Error(ErrorCode::kInvalid,
              fmt::format("state_sync: the mean of \"{}\", {} {}, is \"{}\", {} {}. Both are "
                          "averaged, of one length and type.",
                          item.name, item.data.count, name(item.data.dtype), mean.name,
                          mean.data.count, name(mean.data.dtype)));
}

}  // namespace

StateSync::StateSync(Communicator& comm, Synchronizer& synchronizer, const State& state)
    : comm_(comm), synchronizer_(synchronizer), state_(state), dtype_(DType::kFloat32) {
  if (!synchronizer.mixes()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("state_sync: {} exchanges changes of parameters, not averages of "
                            "states. Use all_reduce, local_sgd or partial_reduce, or average "
                            "parameters alone.",
                            synchronizer.name()));
  }
  for (const StateItem& item : state_.items()) {
    check_item(state_, item);
    if (is_maximum(item)) digits_ += digits_of(item);
    if (!is_mean(item)) continue;
    means_ += item.data.count;
    if (item.data.dtype == DType::kFloat64) dtype_ = DType::kFloat64;
  }
  const auto members = static_cast<std::size_t>(comm.size());
  bytes_.resize((means_ + (digits_ == 0 ? 0 : members * (1 + digits_))) * size_bytes(dtype_));
}

View StateSync::buffer() noexcept {
  return {bytes_.data(), bytes_.size() / size_bytes(dtype_), dtype_};
}

void StateSync::begin() {
  pack();
  synchronizer_.begin(buffer());
}

SyncReport StateSync::average(std::int64_t step) {
  pack();
  SyncReport report = synchronizer_.average(buffer(), step);
  unpack(report);
  return report;
}

SyncReport StateSync::finish() {
  pack();
  SyncReport report = synchronizer_.finish(buffer());
  unpack(report);
  return report;
}

template <class Body>
void StateSync::for_each_mean(Body body) {
  std::size_t first = 0;
  for (const StateItem& item : state_.items()) {
    if (!is_mean(item)) continue;
    body(item, buffer().slice(first, item.data.count));
    first += item.data.count;
  }
}

void StateSync::pack() {
  for_each_mean([](const StateItem& item, View part) { cast(part, item.data); });
  for_each_mean([this](const StateItem& variance, View part) {
    for_each_mean([&](const StateItem& mean, View means) {
      if (mean.name == variance.mean) add_squares(part, means, 1);
    });
  });
  pack_maxima();
}

void StateSync::unpack(const SyncReport& report) {
  if (report.group.size() == 1) return;  // the state is as it was, without rounding
  for_each_mean([this](const StateItem& variance, View part) {
    for_each_mean([&](const StateItem& mean, View means) {
      if (mean.name == variance.mean) add_squares(part, means, -1);
    });
  });
  for_each_mean([](const StateItem& item, View part) { cast(item.data, part); });
  unpack_maxima();
}

// [N] weights, then for each member its digits.
void StateSync::pack_maxima() {
  if (digits_ == 0) return;
  with_floating("state_sync", dtype_, [this]<class T>(T) {
    const auto slots = buffer().as<T>().subspan(means_);
    std::fill(slots.begin(), slots.end(), T{});
    const auto members = static_cast<std::size_t>(comm_.size());
    const auto own = static_cast<std::size_t>(comm_.rank());
    slots[own] = static_cast<T>(1.0F);
    std::size_t next = members + own * digits_;
    for (const StateItem& item : state_.items()) {
      if (!is_maximum(item)) continue;
      for (std::size_t i = 0; i < digits_of(item); ++i) {
        const std::size_t at = i * kDigitBytes;
        std::uint16_t digit = 0;
        std::memcpy(&digit, item.data.data + at,
                    std::min(kDigitBytes, item.data.size_bytes() - at));
        slots[next++] = static_cast<T>(static_cast<float>(digit));
      }
    }
  });
}

void StateSync::unpack_maxima() {
  if (digits_ == 0) return;
  with_floating("state_sync", dtype_, [this]<class T>(T) {
    const auto slots = buffer().as<T>().subspan(means_);
    const auto members = static_cast<std::size_t>(comm_.size());
    std::vector<std::uint16_t> digits(digits_);
    for (std::size_t member = 0; member < members; ++member) {
      const auto weight = static_cast<double>(static_cast<Wide<T>>(slots[member]));
      if (weight <= 0) continue;  // not in the group
      for (std::size_t i = 0; i < digits_; ++i) {
        const auto value = static_cast<Wide<T>>(slots[members + member * digits_ + i]);
        digits[i] = static_cast<std::uint16_t>(std::lround(static_cast<double>(value) / weight));
      }
      std::size_t first = 0;
      for (const StateItem& item : state_.items()) {
        if (!is_maximum(item)) continue;
        take_larger(item.data, reinterpret_cast<const std::byte*>(&digits[first]));
        first += digits_of(item);
      }
    }
  });
}

}  // namespace motley::runtime
