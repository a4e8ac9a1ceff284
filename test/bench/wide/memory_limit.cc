#include "test/bench/wide/memory_limit.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "wide/huge_pages.h"

namespace motley::wide {
namespace {

constexpr std::size_t kAhead = 16;
constexpr std::size_t kLine = 16;  // floats

// xorshift64: G. Marsaglia, "Xorshift RNGs", JSS 2003.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::size_t below(std::size_t n) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (state_ >> 32) * n >> 32;
  }

 private:
  std::uint64_t state_;
};

void change_rows(float* table, const TableShape& shape, std::size_t count, std::uint64_t seed) {
  const std::size_t width = shape.row_bytes / sizeof(float);
  Draw draw(seed);
  std::size_t next[kAhead];
  for (std::size_t& row : next) row = draw.below(shape.rows);
  for (std::size_t i = 0; i < count; ++i) {
    float* const row = table + next[i % kAhead] * width;
    next[i % kAhead] = draw.below(shape.rows);
    const float* const ahead = table + next[i % kAhead] * width;
    for (std::size_t d = 0; d < width; d += kLine) __builtin_prefetch(ahead + d, 1);
    for (std::size_t d = 0; d < width; ++d) row[d] = row[d] * 0.999f + 0.001f;
  }
}

}  // namespace

double random_rows_per_second(const TableShape& shape, int threads) {
  Floats table(shape.rows * shape.row_bytes / sizeof(float));
  const std::size_t count = std::max<std::size_t>(200'000'000 / (shape.row_bytes + 300), 1000);
  double best = 0;
  for (std::uint64_t repeat = 0; repeat < 5; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) {
      others.emplace_back([&, t] {
        change_rows(table.data(), shape, count, 100 * repeat + static_cast<std::uint64_t>(t) + 1);
      });
    }
    change_rows(table.data(), shape, count, 100 * repeat + 1);
    for (std::thread& other : others) other.join();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(count) * threads / elapsed.count());
  }
  return best;
}

}  // namespace motley::wide
