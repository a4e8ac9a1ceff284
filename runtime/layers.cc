#include "runtime/layers.h"

namespace motley::runtime {

std::vector<LayerOptions> mlp_classifier(std::size_t classes) {
  const Dense hidden{128, Bias::kNone};
  return {hidden, BatchNorm{}, Relu{}, hidden, BatchNorm{}, Relu{}, Dense{classes}};
}

std::vector<LayerOptions> small_convolutional_classifier(std::size_t classes) {
  const Conv2d first{.channels = 16, .padding = 1, .bias = Bias::kNone};
  const Conv2d second{.channels = 32, .padding = 1, .bias = Bias::kNone};
  return {first,         BatchNorm{}, Relu{}, Pool{},  //
          second,        BatchNorm{}, Relu{}, Pool{},  //
          Dense{classes}};
}

}  // namespace motley::runtime
