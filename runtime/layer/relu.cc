#include <algorithm>

#include "runtime/layer/layer.h"

namespace motley::runtime {
namespace {

template <class T>
class ReluLayer final : public Layer<T> {
 public:
  explicit ReluLayer(const ImageShape& shape) : shape_(shape) {}

  const char* kind() const noexcept override { return "relu"; }
  ImageShape output() const noexcept override { return shape_; }

  void forward(std::span<const T> in, std::span<T> out, std::size_t /*rows*/,
               Mode /*mode*/) override {
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = std::max(in[i], T{0});
  }
  void backward(std::span<const T> in, std::span<const T> d_out, std::optional<std::span<T>> d_in,
                std::size_t /*rows*/) override {
    for (std::size_t i = 0; d_in && i < in.size(); ++i) (*d_in)[i] = in[i] > 0 ? d_out[i] : T{0};
  }

 private:
  ImageShape shape_;
};

}  // namespace

template <class T>
LayerPtr<T> make_layer(const Relu& /*options*/, const ImageShape& in) {
  return std::make_unique<ReluLayer<T>>(in);
}

template LayerPtr<float> make_layer(const Relu&, const ImageShape&);
template LayerPtr<double> make_layer(const Relu&, const ImageShape&);

}  // namespace motley::runtime
