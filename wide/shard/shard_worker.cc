#include "wide/shard/shard_worker.h"

#include <algorithm>
#include <numeric>

#include "wide/fresh_state.h"
#include "wide/train/settle.h"

namespace motley::wide {
namespace {

SlotRule rule_for(const Model& model, const Samples& shape, const UpdateOptions& rates) {
  return SlotRule::of(model.options(), model.layout(), shape, rates);
}

}  // namespace

ShardWorker::ShardWorker(Communicator& c, const Start& start, const Samples& shape,
                         const TrainOptions& options, const ShardOptions& o)
    : comm(c),
      map(start.model.layout().slots, o.hot, c.size(), o.copies),
      rule(rule_for(start.model, shape, update_options(options))),
      shards(map, start.model.layout(), rule),
      hot(start.model.layout(), map.hot(), rule),
      finder(start.model.layout().slots),
      exchange(c, map, start.model.layout()),
      engine(start.model, options.threads) {
  const ModelOptions& model = start.model.options();
  const FreshState fresh(model, start.model.layout());
  for (int shard = 0; shard < map.shards(); ++shard) {
    if (std::ranges::count(map.keepers(shard), comm.rank()) == 0) continue;
    shards.add(shard);
    const Layout& layout = shards.layout(shard);
    fresh.slots(map.slot_at(shard, 0), static_cast<std::uint64_t>(map.shards()), layout,
                shards.state(shard).data());
    settle_ftrl(model, update_options(options), layout, shards.state(shard).data());
  }
  fresh.slots(0, 1, hot.layout(), hot.state().data());
  std::copy(start.shared.begin(), start.shared.end(), hot.state().begin());
  settle_ftrl(model, update_options(options), hot.layout(), hot.state().data());
}

std::span<const std::uint64_t> ShardWorker::share(std::span<const std::uint64_t> rows) const {
  const auto index = static_cast<std::size_t>(exchange.group().index_of(comm.rank()));
  const std::size_t begin = rows.size() * index / members();
  return rows.subspan(begin, rows.size() * (index + 1) / members() - begin);
}

std::vector<float> ShardWorker::scores(const Samples& samples, std::size_t batch_rows) {
  std::vector<std::uint64_t> rows(samples.rows());
  std::iota(rows.begin(), rows.end(), std::uint64_t{0});
  std::vector<float> all_scores(rows.size());
  const std::size_t unit = members() * batch_rows;
  for (std::size_t first = 0; first < rows.size(); first += unit) {
    const auto all = std::span(rows).subspan(first, std::min(unit, rows.size() - first));
    const auto own = share(all);
    const Step step = pulled_now(copied(samples, own));
    std::vector<float> out(own.size());
    engine.score(step, hot, out);
    std::vector<std::size_t> counts;
    for (std::size_t m = 0; m < members(); ++m)
      counts.push_back(all.size() * (m + 1) / members() - all.size() * m / members());
    comm.all_gather_v(out,
                      {.data = std::span(all_scores).subspan(first, all.size()), .counts = counts},
                      {.group = &exchange.group()})
        .wait();
  }
  return all_scores;
}

}  // namespace motley::wide
