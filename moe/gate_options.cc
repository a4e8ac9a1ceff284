#include "moe/gate_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "comm/error.h"
#include "moe/digest.h"
#include "moe/text/settings.h"

namespace motley::moe {
namespace {

template <class T, std::size_t n>
using Table = std::array<std::pair<std::string_view, T>, n>;

constexpr Table<GateKind, 7> kKinds = {{{"top_k", GateKind::kTopK},
                                        {"prototypes", GateKind::kPrototypes},
                                        {"base", GateKind::kBase},
                                        {"hash", GateKind::kHash},
                                        {"sam", GateKind::kSam},
                                        {"dense_to_sparse", GateKind::kDenseToSparse},
                                        {"topology_limited", GateKind::kTopologyLimited}}};
constexpr Table<GateLogits, 2> kLogits = {
    {{"linear", GateLogits::kLinear}, {"cosine", GateLogits::kCosine}}};
constexpr Table<GateScore, 2> kScores = {
    {{"softmax", GateScore::kSoftmax}, {"sigmoid", GateScore::kSigmoid}}};
constexpr Table<GateNormalize, 2> kNormalize = {
    {{"none", GateNormalize::kNone}, {"chosen", GateNormalize::kChosen}}};
constexpr Table<GateNoise, 3> kNoises = {{{"none", GateNoise::kNone},
                                          {"constant", GateNoise::kConstant},
                                          {"learned", GateNoise::kLearned}}};
constexpr Table<GateGumbel, 3> kGumbels = {
    {{"none", GateGumbel::kNone}, {"all", GateGumbel::kAll}, {"second", GateGumbel::kSecond}}};
constexpr Table<GroupScore, 3> kGroupScores = {
    {{"best", GroupScore::kBest}, {"best_two", GroupScore::kBestTwo}, {"sum", GroupScore::kSum}}};
constexpr Table<BiasMean, 2> kBiasMeans = {{{"free", BiasMean::kFree}, {"zero", BiasMean::kZero}}};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalid, "moe gate: " + what);
}

void require_range(const char* option, double value, double low, double high) {
  if (value >= low && value <= high) return;  // nan is not
  refuse(fmt::format("{} is {}. It must be in [{}, {}].", option, value, low, high));
}

// An option that differs from its default, for a kind that does not read it.
class Unread {
 public:
  explicit Unread(const GateOptions& options) : options_(options) {}

  template <class T>
  void check(const char* option, T GateOptions::*field, std::initializer_list<GateKind> readers) {
    if (options_.*field == kDefault.*field || reads(readers)) return;
    refuse(fmt::format("kind {} does not read {}. Leave it as it is, or take another kind.",
                       name(options_.kind), option));
  }
  void check_loss(const char* loss, double BalanceScales::*field,
                  std::initializer_list<GateKind> readers) {
    if (options_.losses.*field == 0 || reads(readers)) return;
    refuse(fmt::format("kind {} has no loss.{}. Set it to 0, or take another kind.",
                       name(options_.kind), loss));
  }

 private:
  static inline const GateOptions kDefault{};

  bool reads(std::initializer_list<GateKind> readers) const {
    return std::ranges::find(readers, options_.kind) != readers.end();
  }
  const GateOptions& options_;
};

void require_read(const GateOptions& options) {
  using enum GateKind;
  const auto learned = {kTopK, kPrototypes, kBase, kSam, kDenseToSparse, kTopologyLimited};
  const auto weighed = {kTopK, kPrototypes, kSam, kDenseToSparse, kTopologyLimited};
  const auto noisy = {kTopK, kPrototypes, kBase, kSam, kTopologyLimited};
  Unread unread(options);
  unread.check("logits", &GateOptions::logits, learned);
  unread.check("projection", &GateOptions::projection, learned);
  unread.check("score", &GateOptions::score, {kTopK});
  unread.check("normalize", &GateOptions::normalize, weighed);
  unread.check("jitter", &GateOptions::jitter, learned);
  unread.check("noise", &GateOptions::noise, noisy);
  unread.check("noise_scale", &GateOptions::noise_scale, noisy);
  unread.check("gumbel", &GateOptions::gumbel, {kTopK});
  unread.check("groups", &GateOptions::groups, {kTopK, kSam});
  unread.check("top_groups", &GateOptions::top_groups, {kTopK});
  unread.check("group_score", &GateOptions::group_score, {kTopK});
  unread.check("bias_rate", &GateOptions::bias_rate, {kTopK});
  unread.check("bias_mean", &GateOptions::bias_mean, {kTopK});
  unread.check("temperature", &GateOptions::temperature, {kDenseToSparse});
  unread.check("temperature_decay", &GateOptions::temperature_decay, {kDenseToSparse});
  unread.check("temperature_floor", &GateOptions::temperature_floor, {kDenseToSparse});
  unread.check("threshold", &GateOptions::threshold, {kDenseToSparse});
  unread.check("far_share", &GateOptions::far_share, {kTopologyLimited});
  unread.check("hash_seed", &GateOptions::hash_seed, {kHash});
  unread.check_loss("first_choice", &BalanceScales::first_choice, weighed);
  unread.check_loss("all_choices", &BalanceScales::all_choices, weighed);
  unread.check_loss("importance", &BalanceScales::importance, weighed);
  unread.check_loss("load", &BalanceScales::load, {kTopK});
  unread.check_loss("z", &BalanceScales::z, learned);
  unread.check_loss("alignment", &BalanceScales::alignment, {kSam});
}

void require_sizes(const GateOptions& options) {
  const bool hash = options.kind == GateKind::kHash;
  constexpr int kMost = 1 << 24;
  require_range("width", options.width, hash ? 0 : 1, kMost);
  require_range("experts", options.experts, 1, kMost);
  require_range("top_k", options.top_k, 1, options.kind == GateKind::kBase ? 1 : options.experts);
  require_range("groups", options.groups, 1, options.experts);
  require_range("top_groups", options.top_groups, 1, options.groups);
  if (options.logits == GateLogits::kCosine) {
    require_range("projection", options.projection, 1, kMost);
  } else if (options.projection != 0) {
    refuse(fmt::format("projection is {}, but logits are not cosine. Set it to 0.",
                       options.projection));
  }
  const int parts = options.kind == GateKind::kPrototypes ? options.top_k : options.groups;
  if (options.experts % parts != 0) {
    refuse(fmt::format("{} experts are not {} groups of one size.", options.experts, parts));
  }
  const int open = options.experts / options.groups * options.top_groups;
  if (options.top_k > open) {
    refuse(
        fmt::format("top_k is {}, but the {} open groups hold {} experts. Open more, or choose "
                    "fewer.",
                    options.top_k, options.top_groups, open));
  }
}

void require_numbers(const GateOptions& options) {
  constexpr double kLarge = 1e30;
  constexpr double kSmall = 1e-30;
  require_range("weight_scale", options.weight_scale, kSmall, kLarge);
  require_range("jitter", options.jitter, 0, 1);
  require_range("noise_scale", options.noise_scale, kSmall, kLarge);
  require_range("bias_rate", options.bias_rate, 0, kLarge);
  require_range("temperature", options.temperature, kSmall, kLarge);
  require_range("temperature_decay", options.temperature_decay, 0, kLarge);
  require_range("temperature_floor", options.temperature_floor, kSmall, kLarge);
  require_range("threshold", options.threshold, 0, 1);
  require_range("far_share", options.far_share, 0, 1);
  validate(options.losses);
}

// Options that shut each other out.
void require_company(const GateOptions& options) {
  const GateOptions defaults;
  if (options.noise == GateNoise::kNone && options.noise_scale != defaults.noise_scale) {
    refuse(fmt::format("noise_scale is {} without noise. Leave it as it is.", options.noise_scale));
  }
  if (options.bias_rate == 0 && options.bias_mean != defaults.bias_mean) {
    refuse("bias_mean is set without bias_rate. Leave it as it is.");
  }
  if (options.groups == options.top_groups && options.group_score != defaults.group_score) {
    refuse("group_score is set, but all groups are open. Leave it as it is.");
  }
  if (options.gumbel == GateGumbel::kSecond && options.top_k < 2) {
    refuse(fmt::format("gumbel is second, but top_k is {}. There is no second.", options.top_k));
  }
  if (options.gumbel != GateGumbel::kNone && options.bias_rate != 0) {
    refuse("gumbel and bias_rate together choose by neither logits nor scores. Take one.");
  }
  if (options.losses.load == 0) return;
  if (options.noise == GateNoise::kNone || options.groups > options.top_groups ||
      options.gumbel != GateGumbel::kNone || options.bias_rate != 0 ||
      options.top_k >= options.experts) {
    refuse(
        "loss.load is of the k best noisy logits alone: it needs noise and top_k below experts, "
        "and no groups, gumbel or bias_rate.");
  }
}

}  // namespace

void validate(const GateOptions& options) {
  require_sizes(options);
  require_numbers(options);
  require_read(options);
  require_company(options);
}

GateOptions parse_gate_options(std::string_view text) {
  GateOptions options;
  Settings settings("moe gate", text);
  settings.choice("kind", Names<GateKind>(kKinds), options.kind);
  settings.number("width", options.width);
  settings.number("experts", options.experts);
  settings.number("top_k", options.top_k);
  settings.choice("logits", Names<GateLogits>(kLogits), options.logits);
  settings.number("projection", options.projection);
  settings.choice("score", Names<GateScore>(kScores), options.score);
  settings.choice("normalize", Names<GateNormalize>(kNormalize), options.normalize);
  settings.number("weight_scale", options.weight_scale);
  settings.number("jitter", options.jitter);
  settings.choice("noise", Names<GateNoise>(kNoises), options.noise);
  settings.number("noise_scale", options.noise_scale);
  settings.choice("gumbel", Names<GateGumbel>(kGumbels), options.gumbel);
  settings.number("groups", options.groups);
  settings.number("top_groups", options.top_groups);
  settings.choice("group_score", Names<GroupScore>(kGroupScores), options.group_score);
  settings.number("bias_rate", options.bias_rate);
  settings.choice("bias_mean", Names<BiasMean>(kBiasMeans), options.bias_mean);
  settings.number("temperature", options.temperature);
  settings.number("temperature_decay", options.temperature_decay);
  settings.number("temperature_floor", options.temperature_floor);
  settings.number("threshold", options.threshold);
  settings.number("far_share", options.far_share);
  settings.number("hash_seed", options.hash_seed);
  settings.number("loss.first_choice", options.losses.first_choice);
  settings.number("loss.all_choices", options.losses.all_choices);
  settings.number("loss.importance", options.losses.importance);
  settings.number("loss.load", options.losses.load);
  settings.number("loss.z", options.losses.z);
  settings.number("loss.alignment", options.losses.alignment);
  settings.finish();
  validate(options);
  return options;
}

std::string_view name(GateKind kind) noexcept {
  for (const auto& [text, value] : kKinds) {
    if (value == kind) return text;
  }
  return "unknown";
}

std::uint64_t digest(const GateOptions& o) noexcept {
  Digest digest;
  for (const int number :
       {static_cast<int>(o.kind), o.width, o.experts, o.top_k, static_cast<int>(o.logits),
        o.projection, static_cast<int>(o.score), static_cast<int>(o.normalize),
        static_cast<int>(o.noise), static_cast<int>(o.gumbel), o.groups, o.top_groups,
        static_cast<int>(o.group_score), static_cast<int>(o.bias_mean)}) {
    digest.add(number);
  }
  for (const double number :
       {o.weight_scale, o.jitter, o.noise_scale, o.bias_rate, o.temperature, o.temperature_decay,
        o.temperature_floor, o.threshold, o.far_share, o.losses.first_choice, o.losses.all_choices,
        o.losses.importance, o.losses.load, o.losses.z, o.losses.alignment}) {
    digest.add(std::bit_cast<std::uint64_t>(number));
  }
  return digest.add(o.hash_seed).value();
}

}  // namespace motley::moe
