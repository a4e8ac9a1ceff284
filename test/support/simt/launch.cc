#include "test/support/simt/launch.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "comm/device.h"
#include "test/support/device_emulated.h"
#include "test/support/simt/block.h"
#include "test/support/simt/turns.h"
#include "test/support/simt/watch.h"

namespace motley {

// What dynamic_shared() of comm/launch.cuh declares.
alignas(16) thread_local std::byte dynamic_shared_bytes[simt::kMostSharedBytes];

namespace simt {
namespace {

// Runners that no launch uses; their stacks are costly to make.
class Runners {
 public:
  std::unique_ptr<BlockRunner> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<BlockRunner>();
    std::unique_ptr<BlockRunner> runner = std::move(idle_.back());
    idle_.pop_back();
    return runner;
  }
  void give_back(std::unique_ptr<BlockRunner> runner) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(runner));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BlockRunner>> idle_;
};

Runners& runners() {
  static Runners all;
  return all;
}

// Blocks first, first + every, ….
void run_blocks(const Shape& shape, const Call& call, Observer* observer, std::uint64_t first,
                std::uint64_t every, const std::function<void()>& meet) {
  const dim3 grid = shape.grid;
  std::unique_ptr<BlockRunner> runner = runners().take();
  runner->set_on_met(meet);
  for (std::uint64_t i = first; i < std::uint64_t{grid.x} * grid.y * grid.z; i += every) {
    const uint3 block{static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                      static_cast<unsigned>(i / grid.x / grid.y)};
    runner->run(shape, block, call, observer);
  }
  runners().give_back(std::move(runner));
}

void run_grid(const Shape& shape, const Call& call, Observer* observer) {
  const dim3 grid = shape.grid;
  const auto n = static_cast<unsigned>(
      std::min(std::uint64_t{blocks_at_once()}, std::uint64_t{grid.x} * grid.y * grid.z));
  if (n <= 1 || observer != nullptr) return run_blocks(shape, call, observer, 0, 1, {});
  run_in_turns(n, [&](unsigned i, const std::function<void()>& meet) {
    run_blocks(shape, call, nullptr, i, n, meet);
  });
}

bool allowed(const Shape& shape) {
  const auto empty = [](dim3 d) { return d.x == 0 || d.y == 0 || d.z == 0; };
  if (empty(shape.grid) || empty(shape.block)) return false;
  const bool grid = shape.grid.x < 1u << 31 && shape.grid.y < 1u << 16 && shape.grid.z < 1u << 16;
  const bool block = shape.block.x <= 1024 && shape.block.y <= 1024 && shape.block.z <= 64 &&
                     shape.block.x * shape.block.y * shape.block.z <= kMostThreads;
  return grid && block && shape.shared_bytes <= kMostSharedBytes;
}

}  // namespace

bool enqueue(void* stream, const Shape& shape, std::unique_ptr<Call> call) {
  if (!allowed(shape)) return false;
  test::enqueue({stream}, [shape, shared = std::shared_ptr<Call>(std::move(call))] {
    run_watched(shape, *shared, [&](Observer* observer) { run_grid(shape, *shared, observer); });
    return true;
  });
  return true;
}

uint3 thread_index() noexcept { return current()->index; }
uint3 block_index() noexcept { return current()->runner->block(); }
dim3 block_shape() noexcept { return current()->runner->shape().block; }
dim3 grid_shape() noexcept { return current()->runner->shape().grid; }

}  // namespace simt

std::size_t device_shared_bytes() { return simt::kMostSharedBytes; }

}  // namespace motley
