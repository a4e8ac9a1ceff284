// wide/kernel/loops.h: the loops of kernels.h for an A (pack.h), a model M and an optimizer O.
#pragma once

#include <new>
#include <type_traits>

#include "wide/kernel/job_row.h"
#include "wide/kernel/kernels.h"
#include "wide/kernel/linear_row.h"
#include "wide/kernel/meeting.h"
#include "wide/kernel/model_traits.h"
#include "wide/kernel/pack.h"
#include "wide/kernel/places.h"
#include "wide/kernel/slot_steps.h"
#include "wide/linear.h"

namespace motley::wide {

template <class A, class M, class O>
struct Loops : SlotSteps<A, M, O> {
  using Steps = SlotSteps<A, M, O>;
  using Steps::factors_of;
  using Steps::kLinearStride;
  using Steps::kPlanes;
  using Steps::linear_of;
  using Steps::model_of;
  using Steps::step;
  using Steps::step_shared;
  using typename Steps::One;
  using typename Steps::Stepped;
  using Sum = typename M::Sum;
  static constexpr std::size_t kMuch = 512;      // bytes of a slot's factors
  static constexpr std::size_t kNear = 900'000;  // bytes that a core's own cache holds

  using Row = JobRow<kLooksAtFields<M>>;

  [[gnu::always_inline]] static void prefetch(const Job& job, std::uint64_t row, const Tables& t,
                                              const M& m) {
    const std::uint32_t* const end = job.slots + job.row_begin[row + 1];
    const std::size_t bytes = m.width() * kPlanes * sizeof(float);
    for (const std::uint32_t* slot = job.slots + job.row_begin[row]; slot < end; ++slot) {
      __builtin_prefetch(linear_of(t, *slot));
      const char* const factors = reinterpret_cast<const char*>(factors_of(t, m, *slot));
      if (bytes <= kMuch) {
        for (std::size_t b = 0; b < bytes; b += 64) __builtin_prefetch(factors + b, 0, 3);
      } else if (*slot * bytes > kNear) {  // not among the hottest: into the second cache
        for (std::size_t b = 0; b < bytes; b += 64) __builtin_prefetch(factors + b, 0, 2);
      }
    }
  }

  // The score of a row; what its sum is goes to `sum`.
  [[gnu::always_inline]] static float gather_row(const Row& row, const Tables& t, const M& m,
                                                 Sum& sum, float* scratch) {
    const float linear = gather_linear(row, t);
    return t.shared[Layout::kBias] + linear + gather_factors(row, t, m, sum, scratch);
  }

  [[gnu::always_inline]] static float gather_linear(const Row& row, const Tables& t) {
    float linear[4] = {0, 0, 0, 0};  // four sums, as additions wait for each other
    std::size_t i = 0;
    for (; i + 4 <= row.n; i += 4) {
      for (std::size_t j = 0; j < 4; ++j) add_linear(row, i + j, t, linear[j]);
    }
    for (; i < row.n; ++i) add_linear(row, i, t, linear[0]);
    return (linear[0] + linear[1]) + (linear[2] + linear[3]);
  }

  [[gnu::always_inline]] static float gather_factors(const Row& row, const Tables& t, const M& m,
                                                     Sum& sum, float* scratch) {
    m.clear(sum, scratch);
    for (std::size_t i = 0; i < row.n; ++i) {
      m.gather(sum, factors_of(t, m, row.slots[i]), row.field(i), row.value(i));
    }
    return m.score(sum);
  }

  [[gnu::always_inline]] static void add_linear(const Row& row, std::size_t i, const Tables& t,
                                                float& to) {
    One sum(to);
    Linear<One>::gather(sum, One(linear_of(t, row.slots[i])[0]), One(row.value(i)));
    to = Linear<One>::score(sum);
  }

  // What a row's pairs are met with where there is a quicker way than the model's own functions.
  struct Rows {
    explicit Rows(const M& m) : factors(m.width()) {}
    LinearRow<A, O> linear;
    [[no_unique_address]] QuickFactors<A, O, M> factors;
  };

  // Edge by edge: right for any row.
  template <class At>
  [[gnu::always_inline]] static void step_linear(const Row& row, At at, float slope,
                                                 const Rates& rates) {
    for (std::size_t i = 0; i < row.n; ++i) {
      step(at(i), 1, Linear<One>::scatter(One(row.value(i)), One(slope)), rates);
    }
  }

  // Where a row's linear weights are. kHot: some slots are in a copy of the thread's own.
  template <bool kHot>
  [[gnu::always_inline]] static auto linear_at(const Row& row, const Tables& t) {
    return [&row, &t](std::size_t i) {
      return kHot ? linear_of(t, row.slots[i]) : t.linear + row.slots[i] * kLinearStride;
    };
  }

  // The same, for rows that fit a LinearRow.
  template <bool kHot>
  struct RowAt {
    Places<A, kLinearStride, LinearRow<A, O>::kMost> places;
    [[gnu::always_inline]] void find(const Row& row, const Tables& t) {
      if constexpr (kHot) places.find(row.slots, row.n, t);
    }
    [[gnu::always_inline]] auto at(const Row& row, const Tables& t) const {
      if constexpr (kHot) {
        return [this](std::size_t i) __attribute__((always_inline)) { return places(i); };
      } else {
        return linear_at<false>(row, t);
      }
    }
  };

  // A model without factors: rows take so little that most of it would be waiting for the step of
  // the row before. So a row is scored first, and then that step is made, with weights read anew:
  // it comes a row late, and none is lost.
  template <bool kHot>
  static void train_linear(const Job& job, const std::uint64_t* rows, std::size_t n,
                           const Tables& t, LossSum& loss) {
    LinearRow<A, O> quick[2];
    RowAt<kHot> places[2];
    float slope = 0;
    const M m = model_of(job, t);
    const auto learn = [&](std::size_t i) __attribute__((always_inline)) {
      const Row row(job, rows[i]);
      const Stepped rates(job, t);
      if (job.distinct && row.n <= LinearRow<A, O>::kMost) {
        quick[i % 2].template scatter<true>(row.n, row.values, job.uniform,
                                            places[i % 2].at(row, t), slope, rates.linear);
      } else {
        step_linear(row, linear_at<kHot>(row, t), slope, rates.linear);
      }
      step_shared(job, t, slope, rates.shared);
    };
    for (std::size_t i = 0; i < n; ++i) {
      fetch_ahead(job, rows, i, n, t, m);
      const Row row(job, rows[i]);
      const bool fits = job.distinct && row.n <= LinearRow<A, O>::kMost;
      if (fits) places[i % 2].find(row, t);
      const float score =
          t.shared[Layout::kBias] +
          (fits ? quick[i % 2].gather(row.n, row.values, job.uniform, places[i % 2].at(row, t))
                : gather_linear(row, t));
      if (i > 0) learn(i - 1);
      slope = loss.add(job.loss, score, job.labels[rows[i]],
                       job.weights == nullptr ? 1.0f : job.weights[rows[i]]);
    }
    if (n > 0) learn(n - 1);
  }

  template <bool kHot>
  [[gnu::always_inline]] static void train_row(const Job& job, std::uint64_t r, const Tables& t,
                                               const M& m, float* scratch, Rows& quick,
                                               LossSum& loss) {
    const Row row(job, r);
    Sum sum;
    const auto at = linear_at<kHot>(row, t);
    const auto factors_at = [&](std::size_t i) { return factors_of(t, m, row.slots[i]); };
    const bool distinct = job.distinct && row.n <= LinearRow<A, O>::kMost;
    const bool whole = distinct && quick.factors.fits(job, row.n);
    const float linear =
        distinct ? quick.linear.gather(row.n, row.values, job.uniform, at) : gather_linear(row, t);
    const float factors = whole ? quick.factors.gather(row.n, row.values, job.uniform, factors_at)
                                : gather_factors(row, t, m, sum, scratch);
    const float score = t.shared[Layout::kBias] + linear + factors;
    const float slope =
        loss.add(job.loss, score, job.labels[r], job.weights == nullptr ? 1.0f : job.weights[r]);
    const Stepped rates(job, t);
    if (distinct) {
      quick.linear.template scatter<false>(row.n, row.values, job.uniform, at, slope, rates.linear);
    } else {
      step_linear(row, at, slope, rates.linear);
    }
    if (whole) {
      quick.factors.scatter(slope, rates.factors);
    } else {
      const std::size_t width = m.width();
      for (std::size_t i = 0; i < row.n; ++i) {
        float* const v = factors_at(i);
        m.scatter(sum, v, row.field(i), row.value(i), slope,
                  [&](int d, auto gradient) { step(v + d, width, gradient, rates.factors); });
      }
    }
    if constexpr (kSharesWeights<M>) {
      float* const pairs = t.shared + Layout::kPairs;
      m.scatter_shared(sum, slope, [&](int i, float gradient) {
        step(pairs + i, job.layout.shared, One(gradient), rates.shared);
      });
    }
    step_shared(job, t, slope, rates.shared);
  }

  static void train(const Job& job, const std::uint64_t* rows, std::size_t n, const Tables& t,
                    float* scratch, LossSum& loss) {
    if constexpr (kOnlyLinear<M>) {
      t.hot == 0 ? train_linear<false>(job, rows, n, t, loss)
                 : train_linear<true>(job, rows, n, t, loss);
    } else {
      if constexpr (!kLooksAtFields<M>) {  // with fields a row costs much more than that question
        if (t.hot == 0) return train_rows<false>(job, rows, n, t, scratch, loss);
      }
      train_rows<true>(job, rows, n, t, scratch, loss);
    }
  }

  template <bool kHot>
  static void train_rows(const Job& job, const std::uint64_t* rows, std::size_t n, const Tables& t,
                         float* scratch, LossSum& loss) {
    const M m = model_of(job, t);
    Rows quick(m);
    for (std::size_t i = 0; i < n; ++i) {
      fetch_ahead(job, rows, i, n, t, m);
      train_row<kHot>(job, rows[i], t, m, scratch, quick, loss);
    }
  }

  // What rows behind the i-th will need.
  [[gnu::always_inline]] static void fetch_ahead(const Job& job, const std::uint64_t* rows,
                                                 std::size_t i, std::size_t n, const Tables& t,
                                                 const M& m) {
    const bool far = job.layout.size() * sizeof(float) > kNear;
    const std::size_t ahead =
        m.width() * kPlanes * sizeof(float) > kMuch ? 1 : 4;  // rows between a prefetch and the use
    if (i + 16 < n) __builtin_prefetch(job.row_begin + rows[i + 16]);
    if (i + 8 < n) prefetch_input(job, rows[i + 8]);
    if (far && i + ahead < n) prefetch(job, rows[i + ahead], t, m);
  }

  [[gnu::always_inline]] static void prefetch_input(const Job& job, std::uint64_t row) {
    const std::uint64_t begin = job.row_begin[row];
    const std::uint64_t end = job.row_begin[row + 1];
    for (std::uint64_t e = begin; e < end; e += 16) {
      __builtin_prefetch(job.slots + e);
      if (!job.uniform) __builtin_prefetch(job.values + e);
    }
    if (job.uniform) __builtin_prefetch(job.values + row);
    __builtin_prefetch(job.labels + row);
  }

  static void score(const Job& job, std::size_t first, std::size_t last, const Tables& t,
                    float* scratch, float* out) {
    const M m = model_of(job, t);
    for (std::size_t r = first; r < last; ++r) {
      if (r + 2 < last) prefetch(job, r + 2, t, m);
      Sum sum;
      out[r] = gather_row(Row(job, r), t, m, sum, scratch);
    }
  }

  static Sum& sum_of(const BatchSums& sums, std::size_t i) {
    return reinterpret_cast<Sum*>(sums.sums)[i];
  }

  static void gather(const Job& job, const std::uint64_t* rows, std::size_t first, std::size_t last,
                     const Tables& t, const BatchSums& sums, LossSum& loss) {
    const M m = model_of(job, t);
    for (std::size_t i = first; i < last; ++i) {
      const std::uint64_t r = rows[i];
      if (i + 2 < last) prefetch(job, rows[i + 2], t, m);
      Sum* const sum = new (&sum_of(sums, i)) Sum;
      const float score = gather_row(Row(job, r), t, m, *sum, sums.scratch + i * m.scratch());
      sums.slopes[i] =
          loss.add(job.loss, score, job.labels[r], job.weights == nullptr ? 1.0f : job.weights[r]);
    }
  }

  static void update(const Job& job, const Segment* segments, std::size_t n, const Edge* edges,
                     const Tables& t, const BatchSums& sums, float* gradient) {
    const M m = model_of(job, t);
    const Stepped rates(job, t);
    const std::size_t width = m.width();
    for (std::size_t s = 0; s < n; ++s) {
      const Segment& segment = segments[s];
      float* const v = factors_of(t, m, segment.slot);
      float linear = 0;
      for (std::size_t d = 0; d < width; ++d) gradient[d] = 0;
      for (std::uint32_t e = segment.begin; e < segment.end; ++e) {
        const Edge& edge = edges[e];
        const float slope = sums.slopes[edge.row];
        linear += total(Linear<One>::scatter(One(edge.value), One(slope)));
        m.scatter(sum_of(sums, edge.row), v, edge.field, edge.value, slope,
                  [&](int d, auto g) { (g.load(gradient + d) + g).store(gradient + d); });
      }
      Steps::step_slot(m, t, segment.slot, linear, gradient,
                       static_cast<float>(segment.end - segment.begin), rates);
    }
  }

  static void update_shared(const Job& job, std::size_t rows, const Tables& t,
                            const BatchSums& sums, float* gradient) {
    const Stepped rates(job, t);
    float bias = 0;
    for (std::size_t i = 0; i < rows; ++i) bias += sums.slopes[i];
    if constexpr (kSharesWeights<M>) {
      const M m = model_of(job, t);
      const std::size_t pairs = job.layout.pairs;
      for (std::size_t i = 0; i < pairs; ++i) gradient[i] = 0;
      for (std::size_t i = 0; i < rows; ++i) {
        m.scatter_shared(sum_of(sums, i), sums.slopes[i],
                         [&](int at, float g) { gradient[at] += g; });
      }
      for (std::size_t i = 0; i < pairs; ++i) {
        if (gradient[i] == 0) continue;
        step(t.shared + Layout::kPairs + i, job.layout.shared, One(gradient[i]), rates.shared);
      }
    }
    step_shared(job, t, bias, rates.shared);
  }

  static Kernels kernels(const Layout& layout) {
    Job job;
    job.layout = layout;
    const M m = model_of(job, {});
    Kernels k{.sum_bytes = sizeof(Sum),
              .scratch_floats = m.scratch(),
              .score = score,
              .gather = gather,
              .update = update,
              .update_shared = update_shared,
              .apply = Steps::apply,
              .apply_shared = Steps::apply_shared,
              .merge = Meeting<A, O>::merge};
    if constexpr (!std::is_same_v<O, GradientSum>) k.train = train;  // sums are of batches only
    if constexpr (kFollows<O>) k.follow = Meeting<A, O>::follow;
    return k;
  }
};

}  // namespace motley::wide
