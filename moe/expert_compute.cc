#include "moe/expert_compute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "comm/error.h"
#include "moe/expert/products.h"
#include "moe/expert/slot.h"

namespace motley::moe {
namespace {

using expert::Into;
using expert::Product;
using expert::Slot;

// Columns of a product that are one task: enough for a product to run at full speed, few enough for
// an expert to keep several threads busy.
constexpr std::size_t kTaskColumns = 512;

// Rows of a block between the linear maps, which are still in the caches for their activation.
constexpr std::size_t kBlockRows = 96;

struct Columns {
  std::size_t first = 0;
  std::size_t count = 0;
};

std::size_t blocks_of(std::size_t columns) { return (columns + kTaskColumns - 1) / kTaskColumns; }
Columns block(std::size_t columns, std::size_t i) {
  const std::size_t first = i * kTaskColumns;
  return {first, std::min(kTaskColumns, columns - first)};
}

// What a task takes at once of a segment.
struct Blocks {
  std::size_t columns;  // of which a task has a block
  std::size_t rows = std::numeric_limits<std::size_t>::max();
};

// Runs body(rows, columns) for every block of every segment with rows.
template <class Body>
void each_block(Workers& workers, std::span<const ExpertSegment> segments, const Blocks& cut,
                const Body& body) {
  const std::size_t blocks = blocks_of(cut.columns);
  workers.run(segments.size() * blocks, [&](std::size_t task) {
    const ExpertSegment& all = segments[task / blocks];
    const Columns columns = block(cut.columns, task % blocks);
    for (std::size_t r = 0; r < all.rows; r += std::min(cut.rows, all.rows - r)) {
      body(ExpertSegment{all.slot, all.first + r, std::min(cut.rows, all.rows - r)}, columns);
    }
  });
}

void by_transposed(Products products, const Product& p) {
  if (products == Products::kOwn) return expert::kernels().dots(p);
  expert::multiply_by_transposed(p);
}
void multiply(Products products, const Product& p) {
  if (products == Products::kOwn) return expert::kernels().sums(p);
  expert::multiply(p);
}

void require_positive(const char* what, int value) {
  if (value >= 1) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe experts: {} is {}. It must be at least 1.", what, value));
}

float* at(Scratch& scratch, std::size_t first) {
  return scratch.size() == 0 ? nullptr : scratch.data() + first;
}

// sum += the rows of block [rows, columns], ascending.
void add_rows(float* sum, const float* block, std::size_t stride, std::size_t rows,
              std::size_t columns) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) sum[c] += block[r * stride + c];
  }
}

// The gradient of a matrix [outputs, inputs] and its bias, from those of its outputs and its
// inputs.
struct MatrixGradient {
  const float* doutput = nullptr;  // [rows, outputs]
  std::size_t outputs = 0;
  const float* input = nullptr;  // [rows, inputs]
  std::size_t inputs = 0;
  float* matrix = nullptr;
  float* bias = nullptr;
};

// Overwrites rows [block.first, + count) of the matrix and the bias with what `slot`'s segments sum
// to.
void sum_gradient(std::span<const ExpertSegment> segments, std::size_t slot,
                  const MatrixGradient& g, Columns block) {
  float* const out = g.matrix + block.first * g.inputs;
  std::fill_n(g.bias + block.first, block.count, 0.0f);
  Into into = Into::kReplace;
  for (const ExpertSegment& segment : segments) {
    if (segment.slot != slot || segment.rows == 0) continue;
    const float* const doutput = g.doutput + segment.first * g.outputs + block.first;
    expert::multiply({.rows = block.count,
                      .columns = g.inputs,
                      .inner = segment.rows,
                      .a = doutput,
                      .a_row = 1,
                      .a_term = g.outputs,
                      .b = g.input + segment.first * g.inputs,
                      .b_row = g.inputs,
                      .out = out,
                      .out_row = g.inputs,
                      .into = into});
    add_rows(g.bias + block.first, doutput, g.outputs, segment.rows, block.count);
    into = Into::kAdd;
  }
  if (into == Into::kReplace) std::fill_n(out, block.count * g.inputs, 0.0f);
}

}  // namespace

ExpertCompute::ExpertCompute(const ExpertShape& shape, Workers& workers,
                             std::vector<OutputBias> bias, Products products)
    : shape_(shape), workers_(&workers), bias_(std::move(bias)), products_(products) {
  require_positive("width", shape.width);
  require_positive("hidden", shape.hidden);
  expert::use_callers_threads();
}

void ExpertCompute::reserve(ExpertSaved& saved, std::size_t rows, Fill fill) const {
  const std::size_t count = rows * static_cast<std::size_t>(shape_.hidden);
  for (Scratch* scratch : {&saved.hidden, &saved.active, &saved.dhidden}) {
    scratch->resize(count, fill);
  }
  if (shape_.form == ExpertForm::kPlain) return;
  for (Scratch* scratch : {&saved.partner, &saved.dpartner}) scratch->resize(count, fill);
}

void ExpertCompute::forward(const ExpertRows& rows, ExpertSaved& saved) const {
  const auto d = static_cast<std::size_t>(shape_.width);
  const auto h = static_cast<std::size_t>(shape_.hidden);
  const Blocks hidden{h, kBlockRows}, narrow{d};
  assert(saved.hidden.size() >= rows.in.size() / d * h);
  each_block(*workers_, rows.segments, hidden, [&](const ExpertSegment& segment, Columns c) {
    const Slot<const float> slot(rows.slots[segment.slot].data(), shape_);
    const std::size_t first = segment.first * h + c.first;
    const auto map = [&](const float* matrix, float* out) {
      by_transposed(products_, {.rows = segment.rows,
                                .columns = c.count,
                                .inner = d,
                                .a = rows.in.data() + segment.first * d,
                                .a_row = d,
                                .b = matrix + c.first * d,
                                .b_row = d,
                                .out = out,
                                .out_row = h});
    };
    map(slot.w1, saved.hidden.data() + first);
    if (slot.w3 != nullptr) map(slot.w3, saved.partner.data() + first);
    expert::kernels().activate({.rows = segment.rows,
                                .columns = c.count,
                                .stride = h,
                                .activation = shape_.activation,
                                .hidden = saved.hidden.data() + first,
                                .partner = at(saved.partner, first),
                                .active = saved.active.data() + first,
                                .b1 = slot.b1 + c.first,
                                .b3 = slot.b3 == nullptr ? nullptr : slot.b3 + c.first});
  });
  each_block(*workers_, rows.segments, narrow, [&](const ExpertSegment& segment, Columns c) {
    const Slot<const float> slot(rows.slots[segment.slot].data(), shape_);
    float* const out = rows.out.data() + segment.first * d + c.first;
    by_transposed(products_, {.rows = segment.rows,
                              .columns = c.count,
                              .inner = h,
                              .a = saved.active.data() + segment.first * h,
                              .a_row = h,
                              .b = slot.w2 + c.first * h,
                              .b_row = h,
                              .out = out,
                              .out_row = d});
    if (!adds_bias(segment.slot)) return;
    for (std::size_t r = 0; r < segment.rows; ++r) {
      for (std::size_t i = 0; i < c.count; ++i) out[r * d + i] += slot.b2[c.first + i];
    }
  });
}

void ExpertCompute::backward_rows(const ExpertRows& rows, ExpertSaved& saved) const {
  const auto d = static_cast<std::size_t>(shape_.width);
  const auto h = static_cast<std::size_t>(shape_.hidden);
  const Blocks hidden{h, kBlockRows}, narrow{d};
  const auto map = [&](const ExpertSegment& segment, const Product& p) {
    Product product = p;
    product.rows = segment.rows;
    multiply(products_, product);
  };
  each_block(*workers_, rows.segments, hidden, [&](const ExpertSegment& segment, Columns c) {
    const Slot<const float> slot(rows.slots[segment.slot].data(), shape_);
    const std::size_t first = segment.first * h + c.first;
    map(segment, {.columns = c.count,
                  .inner = d,
                  .a = rows.in.data() + segment.first * d,
                  .a_row = d,
                  .b = slot.w2 + c.first,
                  .b_row = h,
                  .out = saved.dhidden.data() + first,
                  .out_row = h});
    expert::kernels().activation_gradient({.block = {.rows = segment.rows,
                                                     .columns = c.count,
                                                     .stride = h,
                                                     .activation = shape_.activation,
                                                     .hidden = saved.hidden.data() + first,
                                                     .partner = at(saved.partner, first)},
                                           .dhidden = saved.dhidden.data() + first,
                                           .dpartner = at(saved.dpartner, first)});
  });
  each_block(*workers_, rows.segments, narrow, [&](const ExpertSegment& segment, Columns c) {
    const Slot<const float> slot(rows.slots[segment.slot].data(), shape_);
    const auto add = [&](const float* dhidden, const float* matrix, Into into) {
      map(segment, {.columns = c.count,
                    .inner = h,
                    .a = dhidden + segment.first * h,
                    .a_row = h,
                    .b = matrix + c.first,
                    .b_row = d,
                    .out = rows.out.data() + segment.first * d + c.first,
                    .out_row = d,
                    .into = into});
    };
    add(saved.dhidden.data(), slot.w1, Into::kReplace);
    if (slot.w3 != nullptr) add(saved.dpartner.data(), slot.w3, Into::kAdd);
  });
}

void ExpertCompute::backward_weights(const ExpertGradients& step, const ExpertSaved& saved) const {
  const auto d = static_cast<std::size_t>(shape_.width);
  const auto h = static_cast<std::size_t>(shape_.hidden);
  const bool gated = shape_.form == ExpertForm::kGated;
  const std::size_t of_hidden = blocks_of(h), of_width = blocks_of(d);
  const std::size_t tasks = (gated ? 2 : 1) * of_hidden + of_width;
  workers_->run(step.gradients.size() * tasks, [&](std::size_t task) {
    const std::size_t slot = task / tasks;
    const Slot<float> g(step.gradients[slot].data(), shape_);
    std::size_t i = task % tasks;
    if (i < of_hidden) {
      return sum_gradient(step.segments, slot,
                          {saved.dhidden.data(), h, step.x.data(), d, g.w1, g.b1}, block(h, i));
    }
    i -= of_hidden;
    if (i < of_width) {
      const Columns columns = block(d, i);
      sum_gradient(step.segments, slot, {step.dy.data(), d, saved.active.data(), h, g.w2, g.b2},
                   columns);
      if (!adds_bias(slot)) std::fill_n(g.b2 + columns.first, columns.count, 0.0f);
      return;
    }
    sum_gradient(step.segments, slot, {saved.dpartner.data(), h, step.x.data(), d, g.w3, g.b3},
                 block(h, i - of_width));
  });
}

}  // namespace motley::moe
