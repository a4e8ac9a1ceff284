// Names of kinds, losses and optimizers, as users write them.
#include <fmt/format.h>

#include "comm/error.h"
#include "wide/model.h"

namespace motley::wide {
namespace {

template <class T>
struct Named {
  T value;
  const char* name;
};

constexpr Named<ModelKind> kKinds[] = {{ModelKind::kLogistic, "lr"},
                                       {ModelKind::kSvm, "svm"},
                                       {ModelKind::kFm, "fm"},
                                       {ModelKind::kFfm, "ffm"},
                                       {ModelKind::kFwfm, "fwfm"}};
constexpr Named<Loss> kLosses[] = {{Loss::kLogistic, "logistic"},
                                   {Loss::kSquared, "squared"},
                                   {Loss::kHinge, "hinge"},
                                   {Loss::kSquaredHinge, "squared_hinge"}};
constexpr Named<Optimizer> kOptimizers[] = {{Optimizer::kSgd, "sgd"},
                                            {Optimizer::kAdaGrad, "adagrad"},
                                            {Optimizer::kFtrl, "ftrl"},
                                            {Optimizer::kAdam, "adam"}};

template <class T, std::size_t n>
const char* name_in(const Named<T> (&list)[n], T value) noexcept {
  for (const auto& entry : list) {
    if (entry.value == value) return entry.name;
  }
  return "default";
}

template <class T, std::size_t n>
T value_in(const Named<T> (&list)[n], const char* what, const std::string& name) {
  std::string names;
  for (std::size_t i = 0; i < n; ++i) {
    if (name == list[i].name) return list[i].value;
    names += fmt::format("{}{}", i == 0 ? "" : i + 1 == n ? " or " : ", ", list[i].name);
  }
  throw Error(ErrorCode::kInvalid,
              fmt::format("model: there is no {} \"{}\". Use {}", what, name, names));
}

}  // namespace

const char* name(ModelKind kind) noexcept { return name_in(kKinds, kind); }
ModelKind model_kind(const std::string& name) { return value_in(kKinds, "kind", name); }
const char* name(Loss loss) noexcept { return name_in(kLosses, loss); }
Loss loss_kind(const std::string& name) { return value_in(kLosses, "loss", name); }
const char* name(Optimizer optimizer) noexcept { return name_in(kOptimizers, optimizer); }
Optimizer optimizer_kind(const std::string& name) {
  return value_in(kOptimizers, "optimizer", name);
}

int planes(Optimizer optimizer) noexcept {
  switch (optimizer) {
    case Optimizer::kSgd:
      return Sgd::kPlanes;
    case Optimizer::kAdaGrad:
      return AdaGrad::kPlanes;
    case Optimizer::kFtrl:
      return Ftrl::kPlanes;
    case Optimizer::kAdam:
      return Adam::kPlanes;
    case Optimizer::kGradientSum:
      return GradientSum::kPlanes;
  }
  return 1;
}

}  // namespace motley::wide
