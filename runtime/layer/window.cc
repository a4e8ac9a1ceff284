#include "runtime/layer/window.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/error.h"

namespace motley::runtime {
namespace {

constexpr auto kOutside = static_cast<std::size_t>(-1);

// Where coordinate `at` of a window at place `place` lies in an image of `size`.
std::size_t coordinate(const Window& window, std::size_t place, std::size_t at, std::size_t size) {
  const std::size_t padded = place * window.stride + at;
  return padded < window.padding || padded - window.padding >= size ? kOutside
                                                                    : padded - window.padding;
}

// body(index in image, index in patches) for each element of a patch that lies in the image.
template <class Body>
void for_each_element(const Window& window, Body body) {
  std::size_t patch = 0;
  for (std::size_t element = 0; element < window.elements(); ++element) {
    const std::size_t channel = element / (window.size * window.size);
    const std::size_t y = element / window.size % window.size, x = element % window.size;
    for (std::size_t row = 0; row < window.rows(); ++row) {
      const std::size_t image_y = coordinate(window, row, y, window.image.height);
      for (std::size_t column = 0; column < window.columns(); ++column, ++patch) {
        const std::size_t image_x = coordinate(window, column, x, window.image.width);
        if (image_y == kOutside || image_x == kOutside) continue;
        body((channel * window.image.height + image_y) * window.image.width + image_x, patch);
      }
    }
  }
}

}  // namespace

void check(const char* layer, const Window& window) {
  const ImageShape& image = window.image;
  const std::size_t least = std::min(image.height, image.width) + 2 * window.padding;
  if (window.size >= 1 && window.stride >= 1 && window.padding < window.size &&
      window.size <= least) {
    return;
  }
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("{}: a window of {}, stride {}, padding {} over an image of {} x {}. Use "
                  "a window no larger than the padded image, at least 1, like the stride, "
                  "and less padding than window.",
                  layer, window.size, window.stride, window.padding, image.height, image.width));
}

template <class T>
void image_to_patches(const Window& window, std::span<const T> image, std::span<T> patches) {
  std::fill(patches.begin(), patches.end(), T{0});  // the padding
  for_each_element(window, [&](std::size_t from, std::size_t to) { patches[to] = image[from]; });
}

template <class T>
void patches_to_image(const Window& window, std::span<const T> patches, std::span<T> image) {
  std::fill(image.begin(), image.end(), T{0});
  for_each_element(window, [&](std::size_t to, std::size_t from) { image[to] += patches[from]; });
}

template void image_to_patches(const Window&, std::span<const float>, std::span<float>);
template void image_to_patches(const Window&, std::span<const double>, std::span<double>);
template void patches_to_image(const Window&, std::span<const float>, std::span<float>);
template void patches_to_image(const Window&, std::span<const double>, std::span<double>);

}  // namespace motley::runtime
