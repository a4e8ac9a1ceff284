#include "runtime/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/error.h"

namespace motley::runtime {
namespace {

// Calls body(T{}) for the C++ type of `dtype`.
template <class Body>
void with_type(const std::string& optimizer, DType dtype, Body body) {
  if (dtype == DType::kFloat32) return body(float{});
  if (dtype == DType::kFloat64) return body(double{});
  throw Error(ErrorCode::kInvalid, fmt::format("{}: parameters of {}. Use float32 or float64.",
                                               optimizer, motley::name(dtype)));
}

}  // namespace

Optimizer::Optimizer(std::string name, ConstView parameters, double learning_rate, double l2)
    : name_(std::move(name)),
      count_(parameters.count),
      dtype_(parameters.dtype),
      learning_rate_(learning_rate),
      l2_(l2) {
  check_option("learning_rate", learning_rate);
  check_option("l2", l2);
  with_type(name_, dtype_, [](auto) {});
}

void Optimizer::set_learning_rate(double rate) {
  check_option("learning_rate", rate);
  learning_rate_ = rate;
}

void Optimizer::add_slot(std::string name, double initial) {
  slots_.push_back({std::move(name), std::vector<std::byte>(count_ * size_bytes(dtype_))});
  with_type(name_, dtype_, [&]<class T>(T) {
    std::ranges::fill(slot(slots_.size() - 1).as<T>(), static_cast<T>(initial));
  });
}

View Optimizer::slot(std::size_t i) noexcept { return {slots_[i].memory.data(), count_, dtype_}; }

void Optimizer::list_slots(State& state) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    state.add({name_ + "." + slots_[i].name, {count_}, slot(i), StatePolicy::kAverage});
  }
}

void Optimizer::check_option(const char* option, double value) const {
  if (value >= 0 && std::isfinite(value)) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("{}: {} is {}. Use a number from 0 upwards.", name_, option, value));
}

void Optimizer::check_weight(const char* option, double value) const {
  if (value >= 0 && value < 1) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("{}: {} is {}. Use a number from 0 to below 1.", name_, option, value));
}

template <class Body>
void Optimizer::step(ConstView parameters, ConstView gradients, Body body) const {
  for (const auto& [what, view] :
       {std::pair{"parameters", parameters}, std::pair{"gradients", gradients}}) {
    if (view.count == count_ && view.dtype == dtype_ && view.memory == Memory::kHost) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("{}: made for {} {} parameters, but given {} {} of {}. Pass as many of "
                            "the same type, in host memory.",
                            name_, count_, motley::name(dtype_), view.count,
                            motley::name(view.dtype), what));
  }
  with_type(name_, dtype_, body);
}

void Optimizer::update(View parameters, ConstView gradients) {
  step(parameters, gradients, [](auto) {});
  begin();
  follow(parameters, gradients, {0, count_});
}

void Optimizer::update_part(View parameters, ConstView gradients, std::size_t first,
                            std::size_t count) {
  if (first > count_ || count > count_ - first) {
    throw Error(ErrorCode::kInvalid, fmt::format("{}: elements {} to {} of {}. There are no such.",
                                                 name_, first, first + count, count_));
  }
  follow(parameters, gradients, {first, first + count});
}

Sgd::Sgd(ConstView parameters, const SgdOptions& options)
    : Optimizer("sgd", parameters, options.learning_rate, options.l2), options_(options) {
  check_weight("momentum", options.momentum);
  if (options.nesterov && options.momentum == 0) {
    throw Error(ErrorCode::kInvalid, "sgd: nesterov with momentum 0. Set a momentum, as 0.9.");
  }
  if (options.momentum > 0) add_slot("velocity");
}

void Sgd::follow(View parameters, ConstView gradients, Part part) {
  step(parameters, gradients, [&]<class T>(T) {
    const auto x = parameters.as<T>();
    const auto gradient = gradients.as<const T>();
    const T rate = static_cast<T>(learning_rate());
    const T decay = static_cast<T>(l2());
    if (options_.momentum == 0) {
      for (std::size_t i = part.first; i < part.end; ++i)
        x[i] -= rate * (gradient[i] + decay * x[i]);
      return;
    }
    const auto v = slot(0).as<T>();
    const T momentum = static_cast<T>(options_.momentum);
    // What x follows is ahead * g + behind * v.
    const T ahead = options_.nesterov ? 1 : 0;
    const T behind = options_.nesterov ? momentum : 1;
    for (std::size_t i = part.first; i < part.end; ++i) {
      const T g = gradient[i] + decay * x[i];
      v[i] = momentum * v[i] + g;
      x[i] -= rate * (ahead * g + behind * v[i]);
    }
  });
}

AdaGrad::AdaGrad(ConstView parameters, const AdaGradOptions& options)
    : Optimizer("adagrad", parameters, options.learning_rate, options.l2), options_(options) {
  check_option("initial_accumulator", options.initial_accumulator);
  check_option("epsilon", options.epsilon);
  add_slot("squares", options.initial_accumulator);
}

void AdaGrad::follow(View parameters, ConstView gradients, Part part) {
  step(parameters, gradients, [&]<class T>(T) {
    const auto x = parameters.as<T>();
    const auto gradient = gradients.as<const T>();
    const auto squares = slot(0).as<T>();
    const T rate = static_cast<T>(learning_rate());
    const T decay = static_cast<T>(l2());
    const T epsilon = static_cast<T>(options_.epsilon);
    for (std::size_t i = part.first; i < part.end; ++i) {
      const T g = gradient[i] + decay * x[i];
      if (g == 0) continue;  // with G = 0 and epsilon = 0 too: nothing moves
      squares[i] += g * g;
      x[i] -= rate * g / (std::sqrt(squares[i]) + epsilon);
    }
  });
}

Adam::Adam(ConstView parameters, const AdamOptions& options)
    : Optimizer("adam", parameters, options.learning_rate, options.l2), options_(options) {
  check_weight("beta1", options.beta1);
  check_weight("beta2", options.beta2);
  check_option("epsilon", options.epsilon);
  check_option("weight_decay", options.weight_decay);
  add_slot("moment1");
  add_slot("moment2");
}

void Adam::list(State& state) {
  list_slots(state);
  state.add("adam.step", step_, StatePolicy::kMaximum);
}

void Adam::follow(View parameters, ConstView gradients, Part part) {
  step(parameters, gradients, [&]<class T>(T) {
    const auto x = parameters.as<T>();
    const auto gradient = gradients.as<const T>();
    const auto m = slot(0).as<T>();
    const auto v = slot(1).as<T>();
    const auto t = static_cast<double>(step_);
    const T rate = static_cast<T>(learning_rate());
    const T decay = static_cast<T>(l2());
    const T decoupled = static_cast<T>(options_.weight_decay);
    const T epsilon = static_cast<T>(options_.epsilon);
    const T keep1 = static_cast<T>(options_.beta1);
    const T keep2 = static_cast<T>(options_.beta2);
    const T take1 = static_cast<T>(1 - options_.beta1);
    const T take2 = static_cast<T>(1 - options_.beta2);
    const T unbias1 = static_cast<T>(1 / (1 - std::pow(options_.beta1, t)));
    const T unbias2 = static_cast<T>(1 / (1 - std::pow(options_.beta2, t)));
    for (std::size_t i = part.first; i < part.end; ++i) {
      const T g = gradient[i] + decay * x[i];
      m[i] = keep1 * m[i] + take1 * g;
      v[i] = keep2 * v[i] + take2 * g * g;
      const T denominator = std::sqrt(v[i] * unbias2) + epsilon;
      const T move = denominator == 0 ? T{0} : m[i] * unbias1 / denominator;
      x[i] -= rate * (move + decoupled * x[i]);
    }
  });
}

Ftrl::Ftrl(ConstView parameters, const FtrlOptions& options)
    : Optimizer("ftrl", parameters, options.learning_rate, options.l2),
      options_(options),
      last_rate_(options.learning_rate) {
  check_option("beta", options.beta);
  check_option("l1", options.l1);
  if (options.learning_rate == 0) {
    throw Error(ErrorCode::kInvalid, "ftrl: learning_rate is 0. Use a number above 0.");
  }
  add_slot("z");
  add_slot("squares");
  step(parameters, parameters, [&]<class T>(T) {
    const auto x = parameters.as<const T>();
    const auto z = slot(0).as<T>();
    const double stiffness = options.beta / options.learning_rate + options.l2;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto value = static_cast<double>(x[i]);
      const double sign = value == 0 ? 0 : std::copysign(1.0, value);
      z[i] = static_cast<T>(-value * stiffness - sign * options.l1);
    }
  });
}

void Ftrl::list(State& state) {
  list_slots(state);
  state.add("ftrl.last_rate", last_rate_, StatePolicy::kMaximum);
}

void Ftrl::begin() {
  if (learning_rate() == 0) return;
  change_ = 1 / learning_rate() - 1 / last_rate_;  // 0 at a constant rate
  last_rate_ = learning_rate();
}

void Ftrl::follow(View parameters, ConstView gradients, Part part) {
  if (learning_rate() == 0) return;
  step(parameters, gradients, [&]<class T>(T) {
    const auto x = parameters.as<T>();
    const auto g = gradients.as<const T>();
    const auto z = slot(0).as<T>();
    const auto squares = slot(1).as<T>();
    const T alpha = static_cast<T>(learning_rate());
    const T beta = static_cast<T>(options_.beta);
    const T l1 = static_cast<T>(options_.l1);
    const T l2_term = static_cast<T>(l2());
    const T change = static_cast<T>(change_);
    for (std::size_t i = part.first; i < part.end; ++i) {
      const T before = std::sqrt(squares[i]);
      squares[i] += g[i] * g[i];
      const T root = std::sqrt(squares[i]);
      const T sigma = (root - before) / alpha + (beta + before) * change;
      z[i] += g[i] - sigma * x[i];
      const T stiffness = (beta + root) / alpha + l2_term;
      if (stiffness == 0) continue;  // no gradient yet, and nothing else that holds x
      const T pull = std::abs(z[i]) - l1;
      x[i] = pull > 0 ? -std::copysign(pull, z[i]) / stiffness : T{0};
    }
  });
}

}  // namespace motley::runtime
