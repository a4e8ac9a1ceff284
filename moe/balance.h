// moe/balance.h: losses that favour even use of the experts, from sums over tokens.
//
//   BalanceStatistics sums = gated.statistics;             // of this rank's tokens
//   comm.all_reduce(sums.sums(), ReduceOp::kSum).wait();   // of all ranks, and micro-batches
//   double loss = balance_losses(sums, scales).total();
//
// A loss of the whole batch is not the mean of its parts' losses. So every rank takes the losses
// and their gradients from the sums over all ranks; then the gradients of all ranks' tokens add up
// to the gradient of one loss, however the batch is split. Counts are those before any drop.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace motley::moe {

// Factors of the losses in the objective; 0 leaves one out. n tokens, E experts; q_e is the gate's
// score of an expert over the sum of all, P_e its mean over tokens. No gradient flows through
// counts.
struct BalanceScales {
  double first_choice =
      0;  // E sum_e f_e P_e, f_e = first choices that are e / n; Switch, equation 4
  double all_choices = 0;  // the same, f_e = choices that are e / all choices; DeepSpeed's top-k
  double importance = 0;   // (deviation / mean)^2 over e of the sum of e's weights; Shazeer et al.
                           // 2017, equations 6, 7
  double load = 0;         // the same of the sum of P(e is chosen if its noise is drawn again);
                           // Shazeer et al. 2017, equations 8 to 11
  double z = 0;            // mean of (log sum_e exp l_e)^2; ST-MoE (Zoph et al. 2022), equation 5
  double alignment = 0;    // mean of what other groups' scores exceed the least chosen one by; SAM
};

// Throws kInvalid unless all are finite and at least 0.
void validate(const BalanceScales& scales);

// Sums over tokens, in one array so that they are reduced in one call.
class BalanceStatistics {
 public:
  explicit BalanceStatistics(int experts = 0);

  int experts() const noexcept { return static_cast<int>((sums_.size() - kPlain) / kPerExpert); }
  std::span<double> sums() noexcept { return sums_; }
  std::span<const double> sums() const noexcept { return sums_; }
  // Throws kInvalid if `other` is of another number of experts.
  void add(const BalanceStatistics& other);

  double& tokens() noexcept { return sums_[0]; }
  double& z() noexcept { return sums_[1]; }
  double& alignment() noexcept { return sums_[2]; }
  double tokens() const noexcept { return sums_[0]; }
  double z() const noexcept { return sums_[1]; }
  double alignment() const noexcept { return sums_[2]; }
  // [experts] each.
  std::span<double> first_count() noexcept { return part(0); }   // first choices
  std::span<double> choice_count() noexcept { return part(1); }  // all choices
  std::span<double> probability() noexcept { return part(2); }   // q_e
  std::span<double> importance() noexcept { return part(3); }    // weights
  std::span<double> load() noexcept { return part(4); }
  std::span<const double> first_count() const noexcept { return part(0); }
  std::span<const double> choice_count() const noexcept { return part(1); }
  std::span<const double> probability() const noexcept { return part(2); }
  std::span<const double> importance() const noexcept { return part(3); }
  std::span<const double> load() const noexcept { return part(4); }

 private:
  static constexpr std::size_t kPlain = 3;
  static constexpr std::size_t kPerExpert = 5;

  std::span<double> part(std::size_t i) noexcept {
    const std::size_t count = (sums_.size() - kPlain) / kPerExpert;
    return sums().subspan(kPlain + i * count, count);
  }
  std::span<const double> part(std::size_t i) const noexcept {
    const std::size_t count = (sums_.size() - kPlain) / kPerExpert;
    return sums().subspan(kPlain + i * count, count);
  }

  std::vector<double> sums_;
};

// Each loss times its scale; all 0 for no tokens.
struct BalanceLosses {
  double first_choice = 0;
  double all_choices = 0;
  double importance = 0;
  double load = 0;
  double z = 0;
  double alignment = 0;

  double total() const noexcept {
    return first_choice + all_choices + importance + load + z + alignment;
  }
};

BalanceLosses balance_losses(const BalanceStatistics& statistics, const BalanceScales& scales);

// d(total)/d(each sum), in the places of the sums; 0 for tokens and counts.
BalanceStatistics balance_gradient(const BalanceStatistics& statistics,
                                   const BalanceScales& scales);

}  // namespace motley::moe
