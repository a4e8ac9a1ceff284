#include "test/support/simt/launch.h"

#include <mutex>
#include <vector>

#include "comm/device.h"
#include "test/support/device_emulated.h"
#include "test/support/simt/block.h"
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

void run_blocks(const Shape& shape, const Call& call, Observer* observer) {
  std::unique_ptr<BlockRunner> runner = runners().take();
  for (unsigned z = 0; z < shape.grid.z; ++z) {
    for (unsigned y = 0; y < shape.grid.y; ++y) {
      for (unsigned x = 0; x < shape.grid.x; ++x) runner->run(shape, {x, y, z}, call, observer);
    }
  }
  runners().give_back(std::move(runner));
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
    run_watched(shape, *shared, [&](Observer* observer) { run_blocks(shape, *shared, observer); });
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
