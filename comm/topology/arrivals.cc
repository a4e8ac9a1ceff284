#include "comm/topology/arrivals.h"

#include <algorithm>

namespace motley {
namespace {

double nanoseconds(Duration time) { return static_cast<double>(time.count()); }

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double time_between(const std::vector<TimePoint>& arrivals, TimePoint start) {
  const std::size_t count = arrivals.size();
  const double mean = nanoseconds(arrivals.back() - start) / static_cast<double>(count);
  std::vector<std::size_t> timely;
  for (std::size_t i = count / 3; i < count; ++i) {
    const bool last = i + 1 == count;
    if (last || nanoseconds(arrivals[i + 1] - arrivals[i]) > mean / 4) timely.push_back(i);
  }
  std::vector<double> times;
  for (const std::size_t i : timely) {
    for (const std::size_t j : timely) {
      if (j >= i + count / 4)
        times.push_back(nanoseconds(arrivals[j] - arrivals[i]) / static_cast<double>(j - i));
    }
  }
  return std::max(1.0, times.empty() ? mean : median(times));
}

}  // namespace motley
