#include "runtime/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <fstream>

#include "comm/error.h"
#include "runtime/scramble.h"

namespace motley::runtime {
namespace {

// The numbers of one line; ends where it is no list of numbers, so that their count is wrong.
std::vector<int> numbers(const std::string& line) {
  std::vector<int> values;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (at < end) {
    int value = 0;
    const auto [next, problem] = std::from_chars(at, end, value);
    if (problem != std::errc{} || (next < end && (*next != ',' || next + 1 == end))) return {};
    values.push_back(value);
    at = next + 1;
  }
  return values;
}

}  // namespace

Images read_images(const std::string& path, const ImagesFormat& format) {
  std::ifstream file(path);
  if (!file) throw_errno("open " + path);
  Images images{.shape = format.shape};
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    const auto refuse = [&](const std::string& what) {
      throw Error(ErrorCode::kInvalid, fmt::format("{}:{}: {}", path, number, what));
    };
    const std::vector<int> values = numbers(line);
    if (values.size() != format.shape.count() + 1) {
      refuse(fmt::format("{} numbers separated by commas. Write {} pixels and a label.",
                         values.size(), format.shape.count()));
    }
    for (std::size_t i = 0; i + 1 < values.size(); ++i) {
      if (values[i] < 0 || values[i] > format.largest) {
        refuse(fmt::format("pixel {} is {}. Use 0 to {}.", i, values[i], format.largest));
      }
      images.pixels.push_back(static_cast<float>(values[i]) / static_cast<float>(format.largest));
    }
    if (values.back() < 0 || values.back() >= format.classes) {
      refuse(fmt::format("label {}. Use 0 to {}.", values.back(), format.classes - 1));
    }
    images.labels.push_back(static_cast<std::uint8_t>(values.back()));
  }
  if (file.bad()) throw_errno("read " + path);
  return images;
}

Split split_every(const Images& images, std::size_t n) {
  if (n < 3) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("split_every: n is {}, which leaves nothing for training. Use at least "
                            "3.",
                            n));
  }
  std::vector<std::int64_t> train, validation, test;
  for (std::size_t i = 0; i < images.size(); ++i) {
    auto& part = i % n == n - 1 ? validation : i % n == n - 2 ? test : train;
    part.push_back(static_cast<std::int64_t>(i));
  }
  return {take(images, train), take(images, validation), take(images, test)};
}

Images take(const Images& images, std::span<const std::int64_t> indices) {
  Images taken{.shape = images.shape};
  const auto count = static_cast<std::int64_t>(images.shape.count());
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= static_cast<std::int64_t>(images.size())) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("take: image {} of {}. They count from 0.", index, images.size()));
    }
    const auto first = images.pixels.begin() + index * count;
    taken.pixels.insert(taken.pixels.end(), first, first + count);
    taken.labels.push_back(images.labels[static_cast<std::size_t>(index)]);
  }
  return taken;
}

void shift_at_random(Images& images, std::span<const std::int64_t> indices, int most,
                     const Seed& seed) {
  if (indices.size() != images.size() || most < 0 || most > 15) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("shift_at_random: {} images, {} indices, by at most {}. Pass an index for "
                    "each, and 0 or more.",
                    images.size(), indices.size(), most));
  }
  const auto [channels, height, width] = images.shape;
  // So many coins, of which half show heads on average.
  const std::uint64_t coins = (std::uint64_t{1} << 2 * most) - 1;
  std::vector<float> before(images.shape.count());
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::uint64_t bits = scramble(mix(seed) ^ static_cast<std::uint64_t>(indices[i]));
    const std::ptrdiff_t down = std::popcount(bits & coins) - most;
    const std::ptrdiff_t right = std::popcount(bits >> 32 & coins) - most;
    const std::span<float> image =
        std::span(images.pixels).subspan(i * before.size(), before.size());
    std::ranges::copy(image, before.begin());
    const auto rows = static_cast<std::ptrdiff_t>(channels * height);
    const auto high = static_cast<std::ptrdiff_t>(height),
               wide = static_cast<std::ptrdiff_t>(width);
    for (std::ptrdiff_t at = 0; at < rows * wide; ++at) {
      const std::ptrdiff_t y = at / wide % high - down, x = at % wide - right;
      const bool inside = y >= 0 && y < high && x >= 0 && x < wide;
      image[static_cast<std::size_t>(at)] =
          inside ? before[static_cast<std::size_t>(at - down * wide - right)] : 0;
    }
  }
}

}  // namespace motley::runtime
