#include "comm/cli/perf/run.h"

#include <algorithm>
#include <array>
#include <vector>

#include "comm/cli/perf/payload.h"
#include "comm/device.h"

namespace motley::perf {
namespace {

struct Pair {
  std::unique_ptr<Storage> in;
  std::unique_ptr<Storage> out;
};

// The buffers of all cells: made once, and touched, so that no cell pays for new pages.
class Pool {
 public:
  Pool(Subject& subject, const std::vector<Cell>& all) : subject_(subject) {
    for (const Cell& cell : all) bytes_ = std::max(bytes_, cell.bytes());
  }

  // Null members if the library has no such buffers.
  const Pair& get(Buffers buffers) {
    const auto i = static_cast<std::size_t>(buffers);
    if (!made_[i]) {
      pairs_[i] = {subject_.allocate(bytes_, buffers), subject_.allocate(bytes_, buffers)};
      made_[i] = true;
    }
    return pairs_[i];
  }

 private:
  Subject& subject_;
  std::size_t bytes_ = 0;
  std::array<Pair, 3> pairs_;
  std::array<bool, 3> made_{};
};

View view(Storage& storage, const Cell& cell, std::size_t count) {
  return {storage.bytes().data(), count, cell.dtype, storage.memory()};
}

// Lets `action` work on what lies at `data`, in host memory.
template <class Action>
void on_host(View data, Action&& action) {
  if (data.memory == Memory::kHost) return action(data);
  std::vector<std::byte> bytes(data.size_bytes());
  const View host(bytes.data(), data.count, data.dtype);
  motley::copy(host, data, StreamRef{});
  synchronize(StreamRef{});
  action(host);
  motley::copy(data, host, StreamRef{});
  synchronize(StreamRef{});
}

std::size_t on_worst_rank(Subject& subject, std::size_t count) {
  double value[] = {static_cast<double>(count)};
  subject.greatest(value);
  return static_cast<std::size_t>(value[0]);
}

void run_cell(Subject& subject, const Cell& cell, const SamplingRule& rule, const Clock& clock,
              const Pair& buffers, Report* report) {
  const int rank = subject.rank();
  const int ranks = subject.size();
  const Extent extent = perf::extent(cell, rank, ranks);
  const View out = view(*buffers.out, cell, extent.out);
  const View in = cell.place == Place::kIn ? out.slice(extent.in_place, extent.in)
                                           : view(*buffers.in, cell, extent.in);
  const Subject::Call call = subject.prepare(cell, in, out);
  if (!call) {
    if (report != nullptr) report->skip(cell, "the library has no such call");
    return;
  }
  on_host(out, [](View data) { std::ranges::fill(data.bytes(), std::byte{0x5a}); });
  on_host(in, [&](View data) { fill(cell, rank, ranks, data); });
  call();
  std::size_t mine = 0;
  on_host(out, [&](View data) { mine = perf::wrong(cell, rank, ranks, data); });
  const std::size_t wrong = on_worst_rank(subject, mine);
  // A sum in place grows with every call; zeros stay what they are.
  if (cell.place == Place::kIn)
    on_host(in, [](View data) { std::ranges::fill(data.bytes(), std::byte{}); });
  const Timing timing = measure(subject, call, rule, clock);
  if (report == nullptr) return;
  report->add({.cell = cell,
               .algorithm = subject.algorithm(cell),
               .timing = timing,
               .price = subject.price(cell),
               .wrong = wrong});
}

}  // namespace

void run(Subject& subject, const Plan& plan, const Clock& clock, Report* report) {
  const std::vector<Cell> all = cells(plan, subject.size());
  Pool pool(subject, all);
  for (const Cell& cell : all) {
    const Pair& buffers = pool.get(cell.buffers);
    if (buffers.in == nullptr) {
      if (report != nullptr) report->skip(cell, "the library has no such buffers");
      continue;
    }
    run_cell(subject, cell, plan.rule, clock, buffers, report);
  }
}

}  // namespace motley::perf
