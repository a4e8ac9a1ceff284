#include "runtime/layer/layer.h"

#include <cmath>
#include <type_traits>

namespace motley::runtime {

template <class T>
LayerPtr<T> make_layer(const LayerOptions& options, const ImageShape& in,
                       Communicator* statistics) {
  return std::visit(
      [&]<class Options>(const Options& layer) {
        if constexpr (std::is_same_v<Options, BatchNorm>) {
          return make_layer<T>(layer, in, statistics);
        } else {
          return make_layer<T>(layer, in);
        }
      },
      options);
}

template LayerPtr<float> make_layer(const LayerOptions&, const ImageShape&, Communicator*);
template LayerPtr<double> make_layer(const LayerOptions&, const ImageShape&, Communicator*);

template <class T>
void draw_weights(std::span<T> weights, std::size_t fan_in, std::mt19937_64& random) {
  const double bound = std::sqrt(6.0 / static_cast<double>(fan_in));
  for (T& weight : weights) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;  // in [0, 1)
    weight = static_cast<T>((2 * uniform - 1) * bound);
  }
}

template void draw_weights(std::span<float>, std::size_t, std::mt19937_64&);
template void draw_weights(std::span<double>, std::size_t, std::mt19937_64&);

}  // namespace motley::runtime
