#include "moe/device_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "comm/error.h"
#include "moe/device/expert_ops.h"
#include "moe/device/grouped_products.h"
#include "moe/device/upload.h"

namespace motley::moe {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalid, "moe experts: " + what);
}

// Parts of a slot, as ExpertShape::slot_count() lays them, in numbers from its begin.
struct SlotPlaces {
  explicit SlotPlaces(const ExpertShape& shape)
      : d(static_cast<std::size_t>(shape.width)), h(static_cast<std::size_t>(shape.hidden)) {}
  std::size_t d, h;
  std::size_t w1() const { return 0; }
  std::size_t b1() const { return h * d; }
  std::size_t w2() const { return b1() + h; }
  std::size_t b2() const { return w2() + d * h; }
  std::size_t w3() const { return b2() + d; }
  std::size_t b3() const { return w3() + h * d; }
};

// The `round`-th segment with rows of each slot that has one. So outputs of a slot are added to one
// after another.
std::vector<ExpertSegment> round_of(std::span<const ExpertSegment> segments, std::size_t round) {
  std::vector<ExpertSegment> chosen;
  std::vector<std::size_t> seen;
  for (const ExpertSegment& segment : segments) {
    if (segment.rows == 0) continue;
    seen.resize(std::max(seen.size(), segment.slot + 1));
    if (seen[segment.slot]++ == round) chosen.push_back(segment);
  }
  return chosen;
}

}  // namespace

void DeviceExpertSaved::reserve(std::size_t rows, const ExpertShape& shape, DType dtype) {
  gated_ = shape.form == ExpertForm::kGated;
  count_ = rows * static_cast<std::size_t>(shape.hidden);
  dtype_ = dtype;
  const std::size_t bytes = (gated_ ? 5 : 3) * count_ * motley::size_bytes(dtype);
  if (memory_ && memory_->size_bytes() >= bytes) return;
  memory_.reset();
  memory_.emplace(bytes);
}

View DeviceExpertSaved::part(Part which) const noexcept {
  constexpr std::size_t kPlaces[kParts] = {0, 1, 3, 2, 4};  // those of gated experts last
  const bool is_here = gated_ || (which != kPartner && which != kDPartner);
  if (!is_here || !memory_) return View(nullptr, 0, dtype_, Memory::kDevice);
  return memory_->view(5 * count_, dtype_).slice(kPlaces[which] * count_, count_);
}

class DeviceExpertCompute::Impl {
 public:
  Impl(const ExpertShape& shape, DType dtype, std::vector<OutputBias> bias)
      : shape_(shape), places_(shape), dtype_(dtype), bias_(std::move(bias)) {}

  const ExpertShape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }

  void forward(const DeviceExpertRows& rows, DeviceExpertSaved& saved, StreamRef stream) {
    check_rows(rows, saved);
    const DeviceSegments segments = upload(rows.segments, rows.slots, stream);
    const DeviceHidden hidden = hidden_of(saved);
    const ProductKind by_rows{ProductForm::kSecondTransposed, ProductInto::kReplace, dtype_};
    const auto map = [&](Side in, Side out, std::size_t matrix) {
      multiply(rows, {in, out, matrix}, by_rows, stream);
    };
    const Side x = width_of(rows.in), y = width_of(rows.out);
    map(x, {hidden.hidden, places_.h}, places_.w1());
    if (gated()) map(x, {hidden.partner, places_.h}, places_.w3());
    activate_on_device(dtype_, segments, hidden, stream);
    map({hidden.active, places_.h}, y, places_.w2());
    add_output_bias_on_device(dtype_, segments, rows.out.data, places_.d, stream);
    uploads_.used(stream);
  }

  void backward_rows(const DeviceExpertRows& rows, DeviceExpertSaved& saved, StreamRef stream) {
    check_rows(rows, saved);
    const DeviceSegments segments = upload(rows.segments, rows.slots, stream);
    const DeviceHidden hidden = hidden_of(saved);
    const ProductKind replaced{ProductForm::kPlain, ProductInto::kReplace, dtype_};
    const Side dy = width_of(rows.in), dx = width_of(rows.out);
    multiply(rows, {dy, {hidden.dhidden, places_.h}, places_.w2()}, replaced, stream);
    activation_gradient_on_device(dtype_, segments, hidden, stream);
    multiply(rows, {{hidden.dhidden, places_.h}, dx, places_.w1()}, replaced, stream);
    if (gated()) {
      const ProductKind added{ProductForm::kPlain, ProductInto::kAdd, dtype_};
      multiply(rows, {{hidden.dpartner, places_.h}, dx, places_.w3()}, added, stream);
    }
    uploads_.used(stream);
  }

  void backward_weights(const DeviceExpertGradients& step, DeviceExpertSaved& saved,
                        StreamRef stream) {
    check_gradients(step, saved);
    const DeviceHidden hidden = hidden_of(saved);
    const Side x = width_of(step.x), dy = width_of(step.dy);
    sum_matrices(step, {{hidden.dhidden, places_.h}, x, places_.w1()}, stream);
    sum_matrices(step, {dy, {hidden.active, places_.h}, places_.w2()}, stream);
    if (gated()) sum_matrices(step, {{hidden.dpartner, places_.h}, x, places_.w3()}, stream);
    sum_biases(step, hidden, stream);
  }

 private:
  // [rows, columns] of all rows; what comes in is only read.
  struct Side {
    void* data = nullptr;
    std::size_t columns = 0;
  };
  Side width_of(const ConstView& view) const {
    return {const_cast<std::byte*>(view.data), places_.d};
  }
  // out = in times a matrix of each slot, which begins at `matrix`.
  struct Map {
    Side in, out;
    std::size_t matrix = 0;
  };
  // A matrix [first.columns, second.columns] of each slot becomes first' second.
  struct Gradient {
    Side first, second;
    std::size_t matrix = 0;
  };

  bool gated() const { return shape_.form == ExpertForm::kGated; }
  bool adds_bias(std::size_t slot) const {
    return bias_.empty() || bias_[slot] == OutputBias::kAdded;
  }
  std::size_t bytes(std::size_t numbers) const { return numbers * motley::size_bytes(dtype_); }
  const void* at(const void* data, std::size_t number) const {
    return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + bytes(number);
  }
  void* at(void* data, std::size_t number) const {
    return data == nullptr ? nullptr : static_cast<std::byte*>(data) + bytes(number);
  }
  void* row(const Side& side, const ExpertSegment& segment) const {
    return at(side.data, segment.first * side.columns);
  }

  void check_slots(std::span<const ExpertSegment> segments, std::size_t slots,
                   std::size_t rows) const {
    if (!bias_.empty() && bias_.size() != slots)
      refuse(fmt::format("{} slots, but biases of {}. Pass as many.", slots, bias_.size()));
    for (const ExpertSegment& segment : segments) {
      if (segment.slot < slots && segment.first <= rows && segment.rows <= rows - segment.first)
        continue;
      refuse(
          fmt::format("a segment of slot {} has rows {} to {}, but there are {} slots and {} "
                      "rows. Pass segments of these.",
                      segment.slot, segment.first, segment.first + segment.rows, slots, rows));
    }
  }
  void check_numbers(const char* what, const ConstView& view, std::size_t columns,
                     std::size_t rows) const {
    if (view.dtype == dtype_ && view.count == rows * columns &&
        (view.count == 0 || view.memory == Memory::kDevice)) {
      return;
    }
    refuse(fmt::format(
        "{} has {} numbers of {} in {} memory, but {} of {} in device memory are "
        "needed.",
        what, view.count, name(view.dtype), view.memory == Memory::kDevice ? "device" : "host",
        rows * columns, name(dtype_)));
  }
  void check_saved(const DeviceExpertSaved& saved, std::size_t rows) const {
    if (saved.count_ >= rows * places_.h && saved.dtype_ == dtype_ && saved.gated_ == gated())
      return;
    refuse(
        fmt::format("room for {} numbers of hidden rows, but {} rows of {} are computed. Call "
                    "reserve() before.",
                    saved.count_, rows, places_.h));
  }
  void check_rows(const DeviceExpertRows& rows, const DeviceExpertSaved& saved) const {
    const std::size_t count = rows.in.count / places_.d;
    check_numbers("the input", rows.in, places_.d, count);
    check_numbers("the output", rows.out, places_.d, count);
    for (const ConstView& slot : rows.slots) check_numbers("a slot", slot, shape_.slot_count(), 1);
    check_slots(rows.segments, rows.slots.size(), count);
    check_saved(saved, count);
  }
  void check_gradients(const DeviceExpertGradients& step, const DeviceExpertSaved& saved) const {
    const std::size_t count = step.x.count / places_.d;
    check_numbers("x", step.x, places_.d, count);
    check_numbers("dy", step.dy, places_.d, count);
    for (const View& slot : step.gradients) check_numbers("a slot", slot, shape_.slot_count(), 1);
    check_slots(step.segments, step.gradients.size(), count);
    check_saved(saved, count);
  }

  static void* gradient_of(const DeviceExpertGradients& step, std::size_t slot) {
    return step.gradients[slot].data;
  }

  DeviceHidden hidden_of(const DeviceExpertSaved& saved) const {
    using Saved = DeviceExpertSaved;
    return {.hidden = saved.part(Saved::kHidden).data,
            .partner = saved.part(Saved::kPartner).data,
            .active = saved.part(Saved::kActive).data,
            .dhidden = saved.part(Saved::kDHidden).data,
            .dpartner = saved.part(Saved::kDPartner).data,
            .columns = places_.h,
            .activation = shape_.activation};
  }

  DeviceSegments upload(std::span<const ExpertSegment> segments, std::span<const ConstView> slots,
                        StreamRef stream) {
    std::vector<DeviceSegment> table;
    std::size_t most = 0;
    for (const ExpertSegment& s : segments) {
      DeviceSegment& one = table.emplace_back(DeviceSegment{s.first, s.rows, s.slot});
      most = std::max(most, s.rows);
      if (slots.empty()) continue;
      const void* const slot = slots[s.slot].data;
      one.b1 = at(slot, places_.b1());
      if (gated()) one.b3 = at(slot, places_.b3());
      if (adds_bias(s.slot)) one.b2 = at(slot, places_.b2());
    }
    if (table.empty()) return {};
    const auto* const data = uploads_.put(std::as_bytes(std::span(table)), stream);
    return {reinterpret_cast<const DeviceSegment*>(data), table.size(), most};
  }

  void multiply(const DeviceExpertRows& rows, const Map& map, const ProductKind& kind,
                StreamRef stream) {
    std::vector<DeviceProduct> products;
    for (const ExpertSegment& segment : rows.segments) {
      products.push_back(
          {.rows = segment.rows,
           .columns = map.out.columns,
           .inner = map.in.columns,
           .a = row(map.in, segment),
           .b = at(static_cast<const void*>(rows.slots[segment.slot].data), map.matrix),
           .out = row(map.out, segment)});
    }
    products_.multiply(products, kind, stream);
  }

  void sum_matrices(const DeviceExpertGradients& step, const Gradient& g, StreamRef stream) {
    const std::vector<ExpertSegment> first = round_of(step.segments, 0);
    for (std::size_t slot = 0; slot < step.gradients.size(); ++slot) {
      if (std::ranges::find(first, slot, &ExpertSegment::slot) != first.end()) continue;
      clear_on_device(at(gradient_of(step, slot), g.matrix),
                      bytes(g.first.columns * g.second.columns), stream);
    }
    for (std::size_t round = 0;; ++round) {
      std::vector<DeviceProduct> products;
      for (const ExpertSegment& segment : round_of(step.segments, round)) {
        products.push_back({.rows = g.first.columns,
                            .columns = g.second.columns,
                            .inner = segment.rows,
                            .a = row(g.first, segment),
                            .b = row(g.second, segment),
                            .out = at(gradient_of(step, segment.slot), g.matrix)});
      }
      if (products.empty()) return;
      products_.multiply(products,
                         {ProductForm::kFirstTransposed,
                          round == 0 ? ProductInto::kReplace : ProductInto::kAdd, dtype_},
                         stream);
    }
  }

  void sum_biases(const DeviceExpertGradients& step, const DeviceHidden& hidden, StreamRef stream) {
    std::vector<DeviceColumnSum> sums;
    for (std::size_t slot = 0; slot < step.gradients.size(); ++slot) {
      void* const gradient = gradient_of(step, slot);
      const auto add = [&](const void* in, std::size_t place, std::size_t columns) {
        sums.push_back({in, at(gradient, place), columns, slot});
      };
      add(hidden.dhidden, places_.b1(), places_.h);
      add(adds_bias(slot) ? step.dy.data : nullptr, places_.b2(), places_.d);
      if (gated()) add(hidden.dpartner, places_.b3(), places_.h);
    }
    if (sums.empty()) return;
    const DeviceSegments segments = upload(step.segments, {}, stream);
    const auto* const data = uploads_.put(std::as_bytes(std::span(sums)), stream);
    sum_columns_on_device(dtype_, segments,
                          {reinterpret_cast<const DeviceColumnSum*>(data), sums.size(),
                           std::max(places_.h, places_.d)},
                          stream);
    uploads_.used(stream);
  }

  ExpertShape shape_;
  SlotPlaces places_;
  DType dtype_;
  std::vector<OutputBias> bias_;
  GroupedProducts products_;
  Uploads uploads_;
};

DeviceExpertCompute::DeviceExpertCompute(const ExpertShape& shape, DType dtype,
                                         std::vector<OutputBias> bias) {
  if (shape.width < 1 || shape.hidden < 1) {
    refuse(fmt::format("width is {} and hidden {}. Both must be at least 1.", shape.width,
                       shape.hidden));
  }
  if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBFloat16) {
    refuse(fmt::format("elements are {}. Take float32, float16 or bfloat16.", name(dtype)));
  }
  impl_ = std::make_unique<Impl>(shape, dtype, std::move(bias));
}
DeviceExpertCompute::~DeviceExpertCompute() = default;
DeviceExpertCompute::DeviceExpertCompute(DeviceExpertCompute&&) noexcept = default;
DeviceExpertCompute& DeviceExpertCompute::operator=(DeviceExpertCompute&&) noexcept = default;

const ExpertShape& DeviceExpertCompute::shape() const noexcept { return impl_->shape(); }

void DeviceExpertCompute::reserve(DeviceExpertSaved& saved, std::size_t rows) const {
  saved.reserve(rows, impl_->shape(), impl_->dtype());
}
void DeviceExpertCompute::forward(const DeviceExpertRows& rows, DeviceExpertSaved& saved,
                                  StreamRef stream) {
  impl_->forward(rows, saved, stream);
}
void DeviceExpertCompute::backward_rows(const DeviceExpertRows& rows, DeviceExpertSaved& saved,
                                        StreamRef stream) {
  impl_->backward_rows(rows, saved, stream);
}
void DeviceExpertCompute::backward_weights(const DeviceExpertGradients& step,
                                           DeviceExpertSaved& saved, StreamRef stream) {
  impl_->backward_weights(step, saved, stream);
}

}  // namespace motley::moe
