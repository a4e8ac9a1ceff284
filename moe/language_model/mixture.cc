#include "moe/language_model/mixture.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/error.h"

namespace motley::moe {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

Mixture::Mixture(Communicator& comm, const Placement& placement, const MixtureOptions& options)
    : comm_(comm),
      placement_(placement),
      options_(options),
      d_(static_cast<std::size_t>(options.layer.width)),
      compute_({.width = options.layer.width,
                .hidden = options.layer.hidden,
                .activation = options.layer.activation},
               workers_),
      executor_(comm.clock(), comm.rank()),
      chunks_(static_cast<std::size_t>(options.degree)) {
  validate(options.layer);
  for (const PhysicalExpert& mine : placement_.of_rank(comm.rank())) {
    const std::size_t count = compute_.shape().slot_count();
    experts_.push_back({mine.expert, std::vector<float>(count), std::vector<float>(count)});
  }
  const auto chunk = [this](const Op& op) -> Chunk& { return chunks_[at(op.chunk)]; };
  const auto dispatch = [this, chunk](const Op& op, int) {
    Chunk& it = chunk(op);
    exchange(it, it.sent, it.received, false);
  };
  executor_.bind(OpKind::kEncode, [this, chunk](const Op& op, int) { pack(chunk(op), false); });
  executor_.bind(OpKind::kEncodeGradient,
                 [this, chunk](const Op& op, int) { pack(chunk(op), true); });
  executor_.bind(OpKind::kDispatch, dispatch);
  executor_.bind(OpKind::kExperts,
                 [this, chunk](const Op& op, int) { experts_forward(chunk(op)); });
  executor_.bind(OpKind::kExpertsGradient,
                 [this, chunk](const Op& op, int) { experts_backward(chunk(op)); });
  executor_.bind(OpKind::kCombine, [this, chunk](const Op& op, int) {
    Chunk& it = chunk(op);
    exchange(it, it.received, it.back, true);
  });
  executor_.bind(OpKind::kDecode, [this](const Op&, int) { add_up(); });
  executor_.bind(OpKind::kDecodeGradient, [this](const Op&, int) { add_up_gradients(); });
}

void Mixture::forward(std::span<const float> x, const Routing& routing, std::span<float> y) {
  x_ = x;
  y_ = y;
  const auto chooser = local_first_chooser();
  std::exception_ptr error;
  try {
    plan_ = make_plan({.routing = routing,
                       .placement = placement_,
                       .capacity = {},
                       .chooser = *chooser,
                       .rank = comm_.rank()});
  } catch (...) {
    error = std::current_exception();  // the others must hear of it
  }
  share_counts(error);
  cut();
  program_ = build(false);
  timeline_ = executor_.run(program_);
  for (Chunk& chunk : chunks_) chunk.returned.swap(chunk.back);
}

void Mixture::backward(std::span<const float> dy, std::span<float> dx, std::span<float> dweight) {
  dy_ = dy;
  dx_ = dx;
  dweight_ = dweight;
  for (Chunk& chunk : chunks_) chunk.back.resize(chunk.returned.size());
  program_ = build(true);
  timeline_ = executor_.run(program_);
}

void Mixture::refuse(const std::exception_ptr& error) {
  share_counts(error);
  std::rethrow_exception(error);  // share_counts() has
}

// Each rank learns whether the others can go on, and what they send to its experts.
void Mixture::share_counts(const std::exception_ptr& error) {
  std::vector<std::int64_t> mine;
  std::vector<std::size_t> out;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const std::size_t first = mine.size();
    mine.push_back(error ? 1 : 0);
    for (int p = placement_.first_of_rank(rank); p < placement_.first_of_rank(rank + 1); ++p)
      mine.push_back(error ? 0 : plan_.send_count[at(p)]);
    out.push_back(mine.size() - first);
  }
  const std::size_t words = 1 + experts_.size();
  std::vector<std::int64_t> told(at(comm_.size()) * words);
  const std::vector<std::size_t> in(at(comm_.size()), words);
  comm_.all_to_all_v({mine, out}, {told, in}).wait();
  if (error) std::rethrow_exception(error);
  counts_.clear();
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const auto row = told.begin() + static_cast<std::ptrdiff_t>(at(rank) * words);
    if (*row != 0) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("moe mixture: rank {} cannot route its tokens, so no rank goes on. "
                              "Its own error says why.",
                              rank),
                  {rank});
    }
    counts_.insert(counts_.end(), row + 1, row + static_cast<std::ptrdiff_t>(words));
  }
}

// Divides the plan's rows among the chunks.
void Mixture::cut() {
  const int ranks = comm_.size();
  for (int c = 0; c < options_.degree; ++c) {
    Chunk& chunk = chunks_[at(c)];
    chunk.mine = chunk_range(experts_.size(), c, options_.degree);
    chunk.choice.clear();
    chunk.send.clear();
    chunk.receive.assign(at(ranks), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto theirs = chunk_range(placement_.of_rank(rank).size(), c, options_.degree);
      const std::size_t first = at(placement_.first_of_rank(rank)) + theirs.first;
      const std::int64_t from = plan_.send_first[first];
      const std::int64_t to = plan_.send_first[first + theirs.count];
      chunk.choice.insert(chunk.choice.end(), plan_.choice.begin() + from,
                          plan_.choice.begin() + to);
      chunk.send.push_back(at(to - from) * d_);
    }
    chunk.segments.clear();
    std::int64_t row = 0;
    std::vector<std::int64_t> place(at(ranks) * chunk.mine.count);
    for (std::size_t e = 0; e < chunk.mine.count; ++e) {
      const std::int64_t start = row;
      for (std::size_t rank = 0; rank < at(ranks); ++rank) {
        const std::int64_t count = counts_[rank * experts_.size() + chunk.mine.first + e];
        place[rank * chunk.mine.count + e] = row;
        chunk.receive[rank] += at(count) * d_;
        row += count;
      }
      chunk.segments.push_back({e, at(start), at(row - start)});
    }
    chunk.place.clear();
    for (std::size_t rank = 0; rank < at(ranks); ++rank) {
      for (std::size_t e = 0; e < chunk.mine.count; ++e) {
        const std::int64_t count = counts_[rank * experts_.size() + chunk.mine.first + e];
        for (std::int64_t i = 0; i < count; ++i)
          chunk.place.push_back(place[rank * chunk.mine.count + e] + i);
      }
    }
    for (auto* values : {&chunk.sent, &chunk.back}) values->resize(chunk.choice.size() * d_);
    for (auto* values : {&chunk.received, &chunk.x, &chunk.y, &chunk.dx, &chunk.dy})
      values->resize(chunk.place.size() * d_);
    compute_.reserve(chunk.saved, chunk.place.size());
  }
}

Program Mixture::build(bool backward) const {
  const RankRows rows = rows_of(plan_, placement_, counts_);
  const TokenAllToAll builder({.degree = options_.degree,
                               .lane = lane_of(comm_.topology()),
                               .algorithm = options_.algorithm});
  const LayerShape shape{.width = options_.layer.width, .hidden = options_.layer.hidden};
  return backward ? builder.backward(shape, rows) : builder.forward(shape, rows);
}

// Rows of tokens, or of their gradients times the weights.
void Mixture::pack(Chunk& chunk, bool gradient) {
  const auto k = static_cast<std::int64_t>(plan_.top_k);
  for (std::size_t row = 0; row < chunk.choice.size(); ++row) {
    const std::int64_t choice = chunk.choice[row];
    const auto from = (gradient ? dy_ : x_).subspan(at(choice / k) * d_, d_);
    const float weight = gradient ? plan_.weight[at(choice)] : 1;
    float* const to = chunk.sent.data() + row * d_;
    for (std::size_t i = 0; i < d_; ++i) to[i] = weight * from[i];
  }
}

void Mixture::exchange(const Chunk& chunk, std::span<const float> in, std::span<float> out,
                       bool back) {
  comm_
      .all_to_all_v({in, back ? chunk.receive : chunk.send},
                    {out, back ? chunk.send : chunk.receive}, {.algorithm = options_.algorithm})
      .wait();
}

void Mixture::put_in_order(Chunk& chunk, std::span<const float> received,
                           std::span<float> ordered) const {
  for (std::size_t row = 0; row < chunk.place.size(); ++row)
    std::ranges::copy(received.subspan(row * d_, d_), ordered.data() + at(chunk.place[row]) * d_);
}

void Mixture::put_back(Chunk& chunk, std::span<const float> ordered,
                       std::span<float> received) const {
  for (std::size_t row = 0; row < chunk.place.size(); ++row) {
    std::ranges::copy(ordered.subspan(at(chunk.place[row]) * d_, d_), received.data() + row * d_);
  }
}

void Mixture::experts_forward(Chunk& chunk) {
  put_in_order(chunk, chunk.received, chunk.x);
  const auto slots = values_of(chunk.mine);
  compute_.forward({.slots = slots, .segments = chunk.segments, .in = chunk.x, .out = chunk.y},
                   chunk.saved);
  put_back(chunk, chunk.y, chunk.received);
}

void Mixture::experts_backward(Chunk& chunk) {
  put_in_order(chunk, chunk.received, chunk.dy);
  const auto slots = values_of(chunk.mine);
  std::vector<std::span<float>> gradients;
  for (std::size_t e = 0; e < chunk.mine.count; ++e)
    gradients.emplace_back(experts_[chunk.mine.first + e].gradients);
  compute_.backward_rows(
      {.slots = slots, .segments = chunk.segments, .in = chunk.dy, .out = chunk.dx}, chunk.saved);
  compute_.backward_weights(
      {.segments = chunk.segments, .x = chunk.x, .dy = chunk.dy, .gradients = gradients},
      chunk.saved);
  put_back(chunk, chunk.dx, chunk.received);
}

std::vector<std::span<const float>> Mixture::values_of(const ChunkRange& mine) const {
  std::vector<std::span<const float>> values;
  for (std::size_t e = 0; e < mine.count; ++e) values.emplace_back(experts_[mine.first + e].values);
  return values;
}

void Mixture::add_up() {
  std::ranges::fill(y_, 0.0f);
  const std::size_t k = at(plan_.top_k);
  std::vector<const float*> row(plan_.tokens * k);  // of each choice
  for (const Chunk& chunk : chunks_) {
    for (std::size_t i = 0; i < chunk.choice.size(); ++i)
      row[at(chunk.choice[i])] = chunk.back.data() + i * d_;
  }
  for (std::size_t choice = 0; choice < row.size(); ++choice) {
    if (row[choice] == nullptr) continue;
    float* const out = y_.data() + choice / k * d_;
    for (std::size_t i = 0; i < d_; ++i) out[i] += plan_.weight[choice] * row[choice][i];
  }
}

void Mixture::add_up_gradients() {
  std::ranges::fill(dx_, 0.0f);
  std::ranges::fill(dweight_, 0.0f);
  const std::size_t k = at(plan_.top_k);
  struct Rows {
    const float* gradient = nullptr;
    const float* output = nullptr;
  };
  std::vector<Rows> rows(plan_.tokens * k);
  for (const Chunk& chunk : chunks_) {
    for (std::size_t i = 0; i < chunk.choice.size(); ++i)
      rows[at(chunk.choice[i])] = {chunk.back.data() + i * d_, chunk.returned.data() + i * d_};
  }
  for (std::size_t choice = 0; choice < rows.size(); ++choice) {
    if (rows[choice].gradient == nullptr) continue;
    const std::size_t token = choice / k;
    for (std::size_t i = 0; i < d_; ++i) {
      dx_[token * d_ + i] += rows[choice].gradient[i];
      dweight_[choice] += dy_[token * d_ + i] * rows[choice].output[i];
    }
  }
}

}  // namespace motley::moe
