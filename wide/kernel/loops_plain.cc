// For every processor: vectors of four, which all compilers know.
#include <cmath>

#include "wide/kernel/loops_for.h"

namespace motley::wide {
namespace {

struct Plain {
  static constexpr int kLanes = 4;
  template <class V>
  static V root(V v) {
    for (std::size_t i = 0; i < sizeof v / sizeof(float); ++i) v[i] = std::sqrt(v[i]);
    return v;
  }
  template <class V>
  static V inverse_root(V v) {
    return 1 / root(v);
  }
  template <class V>
  static V smaller(V a, V b) {
    return a < b ? a : b;
  }
  template <class V>
  static V larger(V a, V b) {
    return a > b ? a : b;
  }
};

}  // namespace

Kernels make_kernels_plain(const ModelOptions& options, const Layout& layout) {
  return make_kernels_for<Plain>(options, layout);
}

}  // namespace motley::wide
