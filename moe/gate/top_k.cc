#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "moe/gate/lots.h"
#include "moe/gate/select.h"

namespace motley::moe::gate {
namespace {

constexpr double kClosed = -std::numeric_limits<double>::infinity();

// What a group of experts with these scores is worth.
double group_value(GroupScore rule, In scores) {
  if (rule == GroupScore::kSum) return std::accumulate(scores.begin(), scores.end(), 0.0);
  double best = kClosed, second = kClosed;
  for (const double s : scores) {
    second = std::max(second, std::min(best, s));
    best = std::max(best, s);
  }
  return rule == GroupScore::kBestTwo && scores.size() > 1 ? best + second : best;
}

// Closes all groups of `value` but the best, by their `score`.
void close_groups(const GateOptions& options, In score, Out value) {
  const auto groups = static_cast<std::size_t>(options.groups);
  const bool sam = options.kind == GateKind::kSam;
  const std::size_t size = score.size() / groups;
  std::vector<double> worth(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    worth[g] = group_value(sam ? GroupScore::kSum : options.group_score, row(score, g, size));
  }
  std::vector<std::int32_t> open(static_cast<std::size_t>(options.top_groups));
  choose_best(worth, open);
  for (std::size_t g = 0; g < groups; ++g) {
    if (std::ranges::find(open, static_cast<std::int32_t>(g)) != open.end()) continue;
    std::ranges::fill(row(value, g, size), kClosed);
  }
}

void add_gumbel(const Selection& selection, std::size_t token, Out value) {
  const Lots lots(selection.input, Purpose::kGumbel, token);
  for (std::size_t e = 0; e < value.size(); ++e) value[e] += lots.gumbel(e);
}

// Chooses from `value`, drawing as the options say.
void draw(const Selection& selection, std::size_t token, Out value, Chosen chosen) {
  const bool training = selection.input.mode == GateMode::kTrain;
  const GateGumbel gumbel = training ? selection.options.gumbel : GateGumbel::kNone;
  if (gumbel == GateGumbel::kSecond) {
    choose_best(value, chosen.first(1));
    value[static_cast<std::size_t>(chosen[0])] = kClosed;
    chosen = chosen.subspan(1);
  }
  if (gumbel != GateGumbel::kNone) add_gumbel(selection, token, value);
  choose_best(value, chosen);
}

}  // namespace

void choose_best(In value, Chosen chosen) {
  std::size_t count = 0;  // of those chosen so far, in order
  for (std::size_t e = 0; e < value.size(); ++e) {
    if (value[e] == kClosed) continue;
    std::size_t place = count;
    while (place > 0 && value[e] > value[static_cast<std::size_t>(chosen[place - 1])]) --place;
    if (place == chosen.size()) continue;
    count = std::min(count + 1, chosen.size());
    std::shift_right(chosen.begin() + static_cast<std::ptrdiff_t>(place),
                     chosen.begin() + static_cast<std::ptrdiff_t>(count), 1);
    chosen[place] = static_cast<std::int32_t>(e);
  }
  std::ranges::fill(chosen.subspan(count), kNoExpert);
}

void select_top_k(const Selection& selection, Chosen chosen) {
  // Logits tell experts apart whose scores are equal in float64; a bias is of scores.
  const bool biased = !selection.bias.empty();
  std::vector<double> score(selection.experts());
  std::vector<double> value(selection.experts());
  for (std::size_t t = 0; t < selection.tokens; ++t) {
    std::ranges::copy(row(selection.score, t, score.size()), score.begin());
    for (std::size_t e = 0; biased && e < score.size(); ++e) score[e] += selection.bias[e];
    std::ranges::copy(biased ? In(score) : row(selection.logits, t, value.size()), value.begin());
    if (selection.options.groups > selection.options.top_groups) {
      close_groups(selection.options, score, value);
    }
    draw(selection, t, value, row(chosen, t, selection.k()));
  }
}

}  // namespace motley::moe::gate
