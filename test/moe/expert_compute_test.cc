// The experts' networks, forward and backward, equal the same networks in double precision, for all
// forms, activations and widths of vectors, with segments without rows wherever they stand; nothing
// reads what nobody wrote, and threads change no bit.
#include "moe/expert_compute.h"

#include <gmock/gmock.h>

#include <cstring>

#include "moe/expert/kernels.h"
#include "moe/reference/expert.h"
#include "test/moe/world_case.h"

namespace motley::moe {
namespace {

struct Problem {
  ExpertShape shape;
  std::vector<std::size_t> rows;  // of each segment
  std::vector<std::size_t> slot;  // of each segment
  std::size_t slots = 1;
  OutputBias bias = OutputBias::kAdded;
};

struct Outcome {
  Floats y, dx, gradients;
};

struct Inputs {
  Floats parameters, x, dy;
};

std::size_t rows_of(const Problem& problem) {
  std::size_t rows = 0;
  for (const std::size_t n : problem.rows) rows += n;
  return rows;
}

Inputs inputs_of(const Problem& problem, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::size_t numbers = rows_of(problem) * static_cast<std::size_t>(problem.shape.width);
  return {random_floats(problem.slots * problem.shape.slot_count(), random, 0.3),
          random_floats(numbers, random), random_floats(numbers, random)};
}

std::vector<ExpertSegment> segments_of(const Problem& problem) {
  std::vector<ExpertSegment> segments;
  std::size_t first = 0;
  for (std::size_t i = 0; i < problem.rows.size(); ++i) {
    segments.push_back({problem.slot[i], first, problem.rows[i]});
    first += problem.rows[i];
  }
  return segments;
}

Outcome computed(const Problem& problem, const Inputs& in, int threads) {
  Workers workers(threads);
  const ExpertCompute compute(problem.shape, workers, std::vector(problem.slots, problem.bias));
  const std::size_t slot = problem.shape.slot_count();
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  Outcome out{Floats(in.x.size(), kNan), Floats(in.x.size(), kNan),
              Floats(in.parameters.size(), kNan)};
  std::vector<std::span<const float>> slots;
  std::vector<std::span<float>> gradients;
  for (std::size_t i = 0; i < problem.slots; ++i) {
    slots.push_back(std::span(in.parameters).subspan(i * slot, slot));
    gradients.push_back(std::span(out.gradients).subspan(i * slot, slot));
  }
  const std::vector<ExpertSegment> segments = segments_of(problem);
  ExpertSaved saved;
  compute.reserve(saved, rows_of(problem), Fill::kNan);
  compute.forward({slots, segments, in.x, out.y}, saved);
  compute.backward_rows({slots, segments, in.dy, out.dx}, saved);
  compute.backward_weights({segments, in.x, in.dy, gradients}, saved);
  return out;
}

struct Want {
  Numbers y, dx, gradients;
};

// One matrix of a slot in double precision, as its place in the slot tells.
struct Matrix {
  std::size_t first, bias, outputs, inputs;
};

Numbers mapped(const Matrix& m, const Numbers& slot, const Numbers& x) {
  Numbers y(m.outputs);
  for (std::size_t i = 0; i < m.outputs; ++i) {
    y[i] = slot[m.bias + i];
    for (std::size_t j = 0; j < m.inputs; ++j) y[i] += slot[m.first + i * m.inputs + j] * x[j];
  }
  return y;
}

// Adds the gradients of <dy, M x + b> to dslot; returns that by x.
Numbers mapped_back(const Matrix& m, const Numbers& slot, const Numbers& x, const Numbers& dy,
                    Numbers& dslot) {
  Numbers dx(m.inputs, 0.0);
  for (std::size_t i = 0; i < m.outputs; ++i) {
    dslot[m.bias + i] += dy[i];
    for (std::size_t j = 0; j < m.inputs; ++j) {
      dslot[m.first + i * m.inputs + j] += dy[i] * x[j];
      dx[j] += slot[m.first + i * m.inputs + j] * dy[i];
    }
  }
  return dx;
}

Want wanted(const Problem& problem, const Inputs& in) {
  const auto d = static_cast<std::size_t>(problem.shape.width);
  const auto h = static_cast<std::size_t>(problem.shape.hidden);
  const bool gated = problem.shape.form == ExpertForm::kGated;
  const Matrix w1{0, h * d, h, d}, w2{h * d + h, 2 * h * d + h, d, h},
      w3{2 * h * d + h + d, 3 * h * d + h + d, h, d};
  const std::size_t count = problem.shape.slot_count();
  Want want{{}, {}, Numbers(in.parameters.size(), 0.0)};
  for (const ExpertSegment& segment : segments_of(problem)) {
    const auto begin = in.parameters.begin() + static_cast<std::ptrdiff_t>(segment.slot * count);
    Numbers slot(begin, begin + static_cast<std::ptrdiff_t>(count));
    if (problem.bias == OutputBias::kElsewhere) {
      std::fill_n(slot.begin() + static_cast<std::ptrdiff_t>(w2.bias), d, 0.0);
    }
    Numbers dslot(count, 0.0);
    for (std::size_t r = segment.first; r < segment.first + segment.rows; ++r) {
      const Numbers x(in.x.begin() + static_cast<std::ptrdiff_t>(r * d),
                      in.x.begin() + static_cast<std::ptrdiff_t>(r * d + d));
      const Numbers dy(in.dy.begin() + static_cast<std::ptrdiff_t>(r * d),
                       in.dy.begin() + static_cast<std::ptrdiff_t>(r * d + d));
      const Numbers z = mapped(w1, slot, x);
      const Numbers g = gated ? mapped(w3, slot, x) : Numbers(h, 1.0);
      Numbers active(h);
      for (std::size_t i = 0; i < h; ++i) {
        active[i] = reference::activate(problem.shape.activation, z[i]) * g[i];
      }
      const Numbers y = mapped(w2, slot, active);
      want.y.insert(want.y.end(), y.begin(), y.end());

      const Numbers dactive = mapped_back(w2, slot, active, dy, dslot);
      Numbers dz(h), dg(h);
      for (std::size_t i = 0; i < h; ++i) {
        dz[i] = dactive[i] * g[i] * reference::activation_slope(problem.shape.activation, z[i]);
        dg[i] = dactive[i] * reference::activate(problem.shape.activation, z[i]);
      }
      Numbers dx = mapped_back(w1, slot, x, dz, dslot);
      if (gated) {
        const Numbers more = mapped_back(w3, slot, x, dg, dslot);
        for (std::size_t i = 0; i < d; ++i) dx[i] += more[i];
      }
      want.dx.insert(want.dx.end(), dx.begin(), dx.end());
    }
    if (problem.bias == OutputBias::kElsewhere) {
      std::fill_n(dslot.begin() + static_cast<std::ptrdiff_t>(w2.bias), d, 0.0);
    }
    for (std::size_t i = 0; i < count; ++i) want.gradients[segment.slot * count + i] += dslot[i];
  }
  return want;
}

void expect_right(const Problem& problem) {
  const Inputs in = inputs_of(problem, 11);
  const Outcome got = computed(problem, in, 1);
  const Want want = wanted(problem, in);
  expect_close(got.y, want.y, "y");
  expect_close(got.dx, want.dx, "dx");
  expect_close(got.gradients, want.gradients, "gradients");
  const Outcome other = computed(problem, in, 3);
  EXPECT_TRUE(same_bits(got.y, other.y) && same_bits(got.dx, other.dx) &&
              same_bits(got.gradients, other.gradients))
      << "with 3 threads";
}

// Few rows and many, which are multiplied in different ways; sizes that fill no vector.
TEST(ExpertCompute, EqualsDoublePrecisionInEveryForm) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
    for (const ExpertForm form : {ExpertForm::kPlain, ExpertForm::kGated}) {
      for (const OutputBias bias : {OutputBias::kAdded, OutputBias::kElsewhere}) {
        SCOPED_TRACE(static_cast<int>(activation) * 4 + static_cast<int>(form) * 2 +
                     static_cast<int>(bias));
        expect_right({.shape = {.width = 7, .hidden = 19, .activation = activation, .form = form},
                      .rows = {5, 0, 33, 1},
                      .slot = {0, 1, 2, 0},
                      .slots = 4,
                      .bias = bias});
      }
    }
  }
}

TEST(ExpertCompute, CutsLongRowsIntoTasks) {
  expect_right({.shape = {.width = 3, .hidden = 1030, .form = ExpertForm::kGated},
                .rows = {26, 2},
                .slot = {0, 1},
                .slots = 2});
  expect_right({.shape = {.width = 530, .hidden = 2}, .rows = {3}, .slot = {0}});
}

// Of the list of what users reported: no rows at the head, in the middle, at the tail, everywhere.
TEST(Scenario, M02_SegmentsWithoutRowsAnywhere) {
  for (unsigned mask = 0; mask < 16; ++mask) {
    SCOPED_TRACE(mask);
    Problem problem{.shape = {.width = 4, .hidden = 5}, .slot = {0, 1, 2, 3}, .slots = 4};
    for (unsigned i = 0; i < 4; ++i) problem.rows.push_back((mask >> i & 1) != 0 ? i + 1 : 0);
    expect_right(problem);
  }
}

// M = 0 in the products themselves, of which other libraries' kernels crashed: nothing is touched,
// and the gradient of an expert without rows is zero, never what was in memory.
TEST(Scenario, M09_ProductsOfNoRows) {
  const Problem none{.shape = {.width = 4, .hidden = 5}, .slots = 2};
  const Outcome out = computed(none, inputs_of(none, 1), 2);
  EXPECT_THAT(out.gradients, testing::Each(0.0f));
  EXPECT_THAT(out.y, testing::IsEmpty());
}

TEST(ExpertKernels, EveryWidthMultipliesAlike) {
  std::mt19937_64 random(3);
  for (std::size_t w = 0; w < expert::kernels_here().size(); ++w) {
    const expert::Kernels* const kernels = expert::kernels_here()[w];
    for (const std::size_t n : {1, 2, 3, 6, 7, 13, 40, 67}) {
      for (const std::size_t m : {0, 1, 5, 13}) {
        SCOPED_TRACE(testing::Message() << "vectors of " << (128 << w) << " bits"
                                        << ", " << m << " x " << n);
        const std::size_t inner = n + 9;
        const Floats a = random_floats(m * inner, random), b = random_floats(n * inner, random);
        Numbers dots(m * n, 1.0), sums(m * n, 0.0);
        for (std::size_t i = 0; i < m * n; ++i) {
          for (std::size_t k = 0; k < inner; ++k) {
            dots[i] += double{a[i / n * inner + k]} * b[i % n * inner + k];
            sums[i] += double{a[k * m + i / n]} * b[k * n + i % n];
          }
        }
        Floats out(m * n, 1.0f);
        kernels->dots(
            {m, n, inner, a.data(), inner, 1, b.data(), inner, out.data(), n, expert::Into::kAdd});
        expect_close(out, dots, "dots");
        kernels->sums(
            {m, n, inner, a.data(), 1, m, b.data(), n, out.data(), n, expert::Into::kReplace});
        expect_close(out, sums, "sums");
      }
    }
  }
}

// One row's bits are the same whatever others are multiplied with it, of them few or more than fit
// into a block, as are columns and terms; and they are close to those in double precision.
TEST(Scenario, M27_ARowsProductsDoNotDependOnOtherRows) {
  std::mt19937_64 random(27);
  constexpr std::size_t kRows = 230, kColumns = 70, kInner = 270;
  const Floats a = random_floats(kRows * kInner, random),
               at = random_floats(kRows * kInner, random),
               b = random_floats(kColumns * kInner, random),
               start = random_floats(kRows * kColumns, random);
  for (const expert::Kernels* const kernels : expert::kernels_here()) {
    for (const expert::Into into : {expert::Into::kReplace, expert::Into::kAdd}) {
      using expert::Product;
      const auto product = [&](std::size_t first, std::size_t rows, int kind) {
        Floats out = start;
        float* const to = out.data() + first * kColumns;
        if (kind == 0)
          kernels->dots({rows, kColumns, kInner, &a[first * kInner], kInner, 1, b.data(), kInner,
                         to, kColumns, into});
        if (kind == 1)
          kernels->sums({rows, kColumns, kInner, &a[first * kInner], kInner, 1, b.data(), kColumns,
                         to, kColumns, into});
        if (kind == 2)
          kernels->sums({rows, kColumns, kInner, &at[first], 1, kRows, b.data(), kColumns, to,
                         kColumns, into});
        return out;
      };
      for (int kind = 0; kind < 3; ++kind) {
        SCOPED_TRACE(testing::Message() << kernels->bits << " bits, kind " << kind);
        const Floats whole = product(0, kRows, kind);
        Numbers want(start.begin(), start.end());
        for (std::size_t i = 0; i < want.size(); ++i) {
          if (into == expert::Into::kReplace) want[i] = 0;
          for (std::size_t k = 0; k < kInner; ++k) {
            want[i] +=
                double{kind == 2 ? at[k * kRows + i / kColumns] : a[i / kColumns * kInner + k]} *
                b[kind == 0 ? i % kColumns * kInner + k : k * kColumns + i % kColumns];
          }
        }
        expect_near(Numbers(whole.begin(), whole.end()), want, 2e-5, "sums of 270 terms");
        for (const auto& [first, rows] : std::vector<std::pair<std::size_t, std::size_t>>{
                 {0, 1}, {5, 3}, {100, 31}, {37, 32}, {3, 193}}) {
          const Floats part = product(first, rows, kind);
          EXPECT_EQ(std::memcmp(&part[first * kColumns], &whole[first * kColumns],
                                rows * kColumns * sizeof(float)),
                    0)
              << rows << " rows from " << first;
        }
      }
    }
  }
}

TEST(ExpertKernels, ActivationsAreThoseOfTheReference) {
  Floats z;
  for (int i = -900; i <= 900; ++i) z.push_back(static_cast<float>(i) / 8);
  const Floats zero(z.size(), 0.0f);
  for (std::size_t w = 0; w < expert::kernels_here().size(); ++w) {
    const expert::Kernels* const kernels = expert::kernels_here()[w];
    for (const Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
      SCOPED_TRACE(testing::Message() << "vectors of " << (128 << w) << " bits"
                                      << ", " << static_cast<int>(activation));
      Floats hidden = z, active(z.size()), slope(z.size(), 1.0f);
      const expert::HiddenBlock block{.rows = 1,
                                      .columns = z.size(),
                                      .stride = z.size(),
                                      .activation = activation,
                                      .hidden = hidden.data(),
                                      .active = active.data(),
                                      .b1 = zero.data()};
      kernels->activate(block);
      kernels->activation_gradient({.block = block, .dhidden = slope.data()});
      Numbers value, gradient;
      for (const float x : z) {
        value.push_back(reference::activate(activation, x));
        gradient.push_back(reference::activation_slope(activation, x));
      }
      expect_near(Numbers(active.begin(), active.end()), value, 1e-6, "value");
      expect_near(Numbers(slope.begin(), slope.end()), gradient, 1e-6, "slope");
    }
  }
}

// Where the square of a number is infinite.
TEST(ExpertKernels, GeluOfHugeNumbersIsTheNumberOrNothing) {
  for (std::size_t w = 0; w < expert::kernels_here().size(); ++w) {
    const expert::Kernels* const kernels = expert::kernels_here()[w];
    Floats hidden = {3e19f, 1e25f, 1e30f, -3e19f, -1e25f, -1e30f, 20.0f}, active(7, 0.0f);
    const Floats zero(7, 0.0f), z = hidden;
    kernels->activate(
        {1, 7, 7, Activation::kGelu, hidden.data(), nullptr, active.data(), zero.data()});
    for (std::size_t i = 0; i < z.size(); ++i)
      EXPECT_NEAR(active[i], std::max(z[i], 0.0f), 1e-6 * std::max(z[i], 1.0f)) << z[i];
  }
}

TEST(ExpertKernels, LetNanThrough) {
  for (std::size_t w = 0; w < expert::kernels_here().size(); ++w) {
    const expert::Kernels* const kernels = expert::kernels_here()[w];
    for (const Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
      Floats hidden(3, std::numeric_limits<float>::quiet_NaN()), active(3, 0.0f);
      const Floats zero(3, 0.0f);
      kernels->activate({1, 3, 3, activation, hidden.data(), nullptr, active.data(), zero.data()});
      EXPECT_THAT(active, testing::Each(testing::IsNan()));
    }
  }
}

TEST(Workers, RunEachTaskOnceAndThrowWhatOneThrew) {
  for (const int threads : {1, 2, 5}) {
    Workers workers(threads);
    for (const std::size_t tasks : {0, 1, 2, 100}) {
      std::vector<int> runs(tasks, 0);
      workers.run(tasks, [&](std::size_t i) { ++runs[i]; });
      EXPECT_THAT(runs, testing::Each(1));
    }
    EXPECT_THROW(workers.run(10,
                             [](std::size_t i) {
                               if (i == 3) throw Error(ErrorCode::kInvalid, "three");
                             }),
                 Error);
    workers.run(1, [](std::size_t) {});
  }
  expect_invalid([] { Workers none(0); }, {"0 threads"});
}

TEST(ExpertCompute, RefusesSizesThatAreNone) {
  Workers workers;
  expect_invalid([&] { ExpertCompute({.width = 0, .hidden = 4}, workers); }, {"width is 0"});
  expect_invalid([&] { ExpertCompute({.width = 4, .hidden = -1}, workers); }, {"hidden is -1"});
}

}  // namespace
}  // namespace motley::moe
