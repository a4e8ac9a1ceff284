// Square windows that move over an image.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/layers.h"

namespace motley::runtime {

struct Window {
  ImageShape image;
  std::size_t size = 1;
  std::size_t stride = 1;
  std::size_t padding = 0;

  // Places of the window, in each direction and in all.
  std::size_t rows() const noexcept { return (image.height + 2 * padding - size) / stride + 1; }
  std::size_t columns() const noexcept { return (image.width + 2 * padding - size) / stride + 1; }
  std::size_t places() const noexcept { return rows() * columns(); }
  // Elements under the window, over all channels.
  std::size_t elements() const noexcept { return image.channels * size * size; }
};

// Throws kInvalid, naming `layer`, if the window has no place in the image, or its numbers are out
// of range.
void check(const char* layer, const Window& window);

// patches [window.elements()][window.places()] from image [window.image.count()], and back, where
// elements of several patches are summed.
template <class T>
void image_to_patches(const Window& window, std::span<const T> image, std::span<T> patches);
template <class T>
void patches_to_image(const Window& window, std::span<const T> patches, std::span<T> image);

}  // namespace motley::runtime
