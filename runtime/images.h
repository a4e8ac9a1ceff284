// runtime/images.h: small labelled images in memory, read from text.
//
//   const Images all = read_images("digits.csv", {.shape = {1, 8, 8}, .classes = 10, .largest =
//   16}); const auto [train, test] = split_every(all, 6);   // each sixth image is for the test
//   const Images batch = take(train, indices);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/layers.h"

namespace motley::runtime {

struct Images {
  ImageShape shape;
  std::vector<float> pixels;         // [size()][shape.count()], in [0, 1]
  std::vector<std::uint8_t> labels;  // [size()]

  std::size_t size() const noexcept { return labels.size(); }
};

// What must be true of a file.
struct ImagesFormat {
  ImageShape shape;
  int classes = 10;   // labels are in [0, classes), at most 256
  int largest = 255;  // pixels are whole numbers in [0, largest]
};

// One image a line: its pixels and its label, separated by commas. Throws kInvalid, naming file and
// line, for one that is not so; kIo if the file cannot be read.
Images read_images(const std::string& path, const ImagesFormat& format);

struct Split {
  Images train;
  Images test;
};
// Images n - 1, 2n - 1, … (from 0) are the test, all others for training. n is at least 2.
Split split_every(const Images& images, std::size_t n);

// The images of these indices, in their order.
Images take(const Images& images, std::span<const std::int64_t> indices);

}  // namespace motley::runtime
