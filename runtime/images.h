// runtime/images.h: small labelled images in memory, read from text.
//
//   const Images all = read_images("digits.csv", format);
//   const Split digits = split_every(all, 6);               // train, validation, test
//   Images batch = take(digits.train, indices);
//   shift_at_random(batch, indices, 1, {.seed = 1, .purpose = "shift", .epoch = epoch});
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/layers.h"
#include "runtime/seed.h"

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
  Images validation;  // to choose models and their options by
  Images test;        // to be looked at once, when all has been chosen
};
// Of each n images, in order, the last is for validation, the one before it for the test, the
// others are for training. n is at least 3.
Split split_every(const Images& images, std::size_t n);

// The images of these indices, in their order.
Images take(const Images& images, std::span<const std::int64_t> indices);

// Moves each image by up to `most` pixels (15 at most) up or down and left or right, by none most
// often: by the number of heads of 2 `most` coins, less `most`. Drawn from `seed` and its number in
// `indices`: alike whatever batch it is in, and on whichever worker. What comes in is 0.
void shift_at_random(Images& images, std::span<const std::int64_t> indices, int most,
                     const Seed& seed);

}  // namespace motley::runtime
