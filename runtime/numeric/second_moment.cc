#include "runtime/numeric/second_moment.h"

#include <algorithm>

#include "runtime/numeric/types.h"

namespace motley::runtime {

void add_squares(View variances, ConstView means, int sign) {
  with_floating("variance", variances.dtype, [&]<class T>(T) {
    const auto v = variances.as<T>();
    const auto m = means.as<const T>();
    for (std::size_t i = 0; i < v.size(); ++i) {
      const auto mean = static_cast<double>(static_cast<Wide<T>>(m[i]));
      const auto value = static_cast<double>(static_cast<Wide<T>>(v[i])) + sign * mean * mean;
      v[i] = static_cast<T>(static_cast<Wide<T>>(std::max(0.0, value)));
    }
  });
}

}  // namespace motley::runtime
