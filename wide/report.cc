#include "wide/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "wide/loss.h"

namespace motley::wide {
namespace {

constexpr double kSide = 300;   // of a plot, in pixels
constexpr double kMargin = 46;  // left and below, for numbers

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::vector<std::size_t> by_score(std::span<const float> scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  return order;
}

// A plot with axes from the least to the largest of its numbers, or the ends given.
class Plot {
 public:
  Plot(std::string title, std::string x, std::string y)
      : title_(std::move(title)), x_(std::move(x)), y_(std::move(y)) {}

  void ends(Point least, Point most) { least_ = least, most_ = most; }
  void line(const std::vector<Point>& points, const char* color, const char* dash = "") {
    std::string path;
    for (const Point& p : points) {
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", across(p.x), up(p.y));
    }
    body_ += fmt::format(
        "<polyline fill='none' stroke='{}' stroke-width='2' stroke-dasharray='{}' points='{}'/>\n",
        color, dash, path);
  }
  void dots(const std::vector<Point>& points, const char* color) {
    for (const Point& p : points) {
      body_ += fmt::format("<circle r='4' fill='{}' cx='{:.1f}' cy='{:.1f}'/>\n", color,
                           across(p.x), up(p.y));
    }
  }
  std::string svg() const {
    std::string out = fmt::format(
        "<figure><figcaption>{}</figcaption><svg width='{:.0f}' height='{:.0f}'>\n"
        "<rect x='{}' y='8' width='{}' height='{}' fill='none' stroke='#999'/>\n",
        escaped(title_), kSide + kMargin + 16, kSide + kMargin + 8, kMargin, kSide, kSide);
    for (int i = 0; i <= 4; ++i) {
      const double share = i / 4.0;
      const double x = least_.x + share * (most_.x - least_.x);
      const double y = least_.y + share * (most_.y - least_.y);
      out += fmt::format(
          "<text x='{:.0f}' y='{:.0f}' text-anchor='middle'>{:.3g}</text>"
          "<text x='{:.0f}' y='{:.0f}' text-anchor='end'>{:.3g}</text>\n",
          across(x), kSide + 24, x, kMargin - 4, up(y) + 4, y);
    }
    out += fmt::format("<text x='{:.0f}' y='{:.0f}' text-anchor='middle'>{}</text>\n",
                       kMargin + kSide / 2, kSide + 42, escaped(x_));
    out += fmt::format(
        "<text transform='translate(12,{:.0f}) rotate(-90)' text-anchor='middle'>{}</text>\n",
        8 + kSide / 2, escaped(y_));
    return out + body_ + "</svg></figure>\n";
  }

 private:
  double across(double x) const { return kMargin + kSide * part(x, least_.x, most_.x); }
  double up(double y) const { return 8 + kSide * (1 - part(y, least_.y, most_.y)); }
  static double part(double v, double least, double most) {
    return most > least ? std::clamp((v - least) / (most - least), 0.0, 1.0) : 0.5;
  }

  std::string title_, x_, y_;
  Point least_{0, 0};
  Point most_{1, 1};
  std::string body_;
};

std::string table(const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<table><tr>";
  for (const std::string& cell : head) out += "<th>" + escaped(cell) + "</th>";
  out += "</tr>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (const std::string& cell : row) out += "<td>" + escaped(cell) + "</td>";
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

std::string figure(const std::optional<double>& value) {
  return value ? fmt::format("{:.6f}", *value) : "none";
}

std::string figures(const Evaluation& e, Loss loss) {
  std::vector<std::vector<std::string>> rows{{"rows", fmt::format("{}", e.rows)}};
  if (loss == Loss::kSquared) {
    rows.push_back({"RMSE", fmt::format("{:.6f}", e.rmse)});
    return table({"figure", "value"}, rows);
  }
  rows.push_back({"positives", fmt::format("{}", e.positives)});
  rows.push_back({"log loss", fmt::format("{:.6f}", e.log_loss)});
  rows.push_back({"normalised entropy", figure(e.normalised_entropy)});
  rows.push_back({"AUC", figure(e.auc)});
  rows.push_back({"calibration (predicted by observed)", figure(e.calibration)});
  rows.push_back({"accuracy at 0.5", fmt::format("{:.6f}", e.accuracy)});
  rows.push_back({"precision at 0.5", figure(e.precision)});
  rows.push_back({"recall at 0.5", figure(e.recall)});
  return table({"figure", "value"}, rows);
}

std::string loss_plot(const std::vector<EpochReport>& epochs) {
  std::vector<Point> train;
  std::vector<Point> valid;
  double least = epochs[0].train_loss;
  double most = least;
  for (const EpochReport& epoch : epochs) {
    train.push_back({static_cast<double>(epoch.epoch), epoch.train_loss});
    if (epoch.validation) valid.push_back({train.back().x, epoch.validation->loss});
    for (const double y : {train.back().y, valid.empty() ? train.back().y : valid.back().y}) {
      least = std::min(least, y);
      most = std::max(most, y);
    }
  }
  Plot plot("Loss by epoch: training dashed, validation solid", "epoch", "loss");
  plot.ends({1, least}, {static_cast<double>(epochs.size()), most});
  plot.line(train, "#888", "5 4");
  plot.line(valid, "#06c");
  return plot.svg();
}

std::string plots(const Evaluation& e, const ReportInput& input) {
  std::string out;
  if (e.auc) {
    Plot plot("ROC", "share of negatives", "share of positives");
    plot.line({{0, 0}, {1, 1}}, "#bbb", "4 4");
    plot.line(roc(input.scores, input.labels, 200), "#06c");
    out += plot.svg();
  }
  const std::vector<Point> bins = calibration(input.scores, input.labels, 20);
  double most = 0;
  for (const Point& p : bins) most = std::max({most, p.x, p.y});
  Plot plot("Calibration: 20 groups of rows by predicted probability", "predicted", "observed");
  plot.ends({0, 0}, {most, most});
  plot.line({{0, 0}, {most, most}}, "#bbb", "4 4");
  plot.dots(bins, "#06c");
  return out + plot.svg();
}

}  // namespace

std::vector<HeavyFeature> heaviest(const Model& model, std::size_t most) {
  const Layout& layout = model.layout();
  const std::span<const float> state = model.weights();
  std::vector<HeavyFeature> all;
  for (std::size_t slot = 0; slot < layout.slots; ++slot) {
    double squares = 0;
    for (std::size_t d = 0; d < layout.width; ++d) {
      const std::size_t at = layout.factors_of(slot) + d;
      if (!layout.is_weight(at)) continue;
      squares += static_cast<double>(state[at]) * static_cast<double>(state[at]);
    }
    all.push_back({.id = model.dictionary().ids()[slot],
                   .weight = state[layout.linear(slot)],
                   .factors = static_cast<float>(std::sqrt(squares))});
  }
  std::stable_sort(all.begin(), all.end(), [](const HeavyFeature& a, const HeavyFeature& b) {
    return std::abs(a.weight) > std::abs(b.weight);
  });
  all.resize(std::min(most, all.size()));
  return all;
}

std::vector<Point> roc(std::span<const float> scores, std::span<const float> labels,
                       std::size_t most) {
  const std::vector<std::size_t> order = by_score(scores);
  double positives = 0;
  for (const float label : labels) positives += label > 0 ? 1 : 0;
  const double negatives = static_cast<double>(labels.size()) - positives;
  if (positives == 0 || negatives == 0) return {};
  std::vector<Point> points{{0, 0}};
  double found = 0;
  double wrong = 0;
  const double step = 1 / static_cast<double>(std::max<std::size_t>(most, 2) - 1);
  for (std::size_t i = order.size(); i-- > 0;) {
    labels[order[i]] > 0 ? ++found : ++wrong;
    if (i > 0 && scores[order[i - 1]] == scores[order[i]]) continue;  // equal scores go together
    const Point next{wrong / negatives, found / positives};
    const double moved = next.x - points.back().x + next.y - points.back().y;
    if (i == 0 || moved >= 2 * step) points.push_back(next);
  }
  return points;
}

std::vector<Point> calibration(std::span<const float> scores, std::span<const float> labels,
                               std::size_t bins) {
  const std::vector<std::size_t> order = by_score(scores);
  std::vector<Point> points;
  for (std::size_t bin = 0; bin < bins; ++bin) {
    const std::size_t begin = order.size() * bin / bins;
    const std::size_t end = order.size() * (bin + 1) / bins;
    if (begin == end) continue;
    Point sum;
    for (std::size_t i = begin; i < end; ++i) {
      sum.x += static_cast<double>(LogisticLoss::probability(scores[order[i]]));
      sum.y += labels[order[i]] > 0 ? 1 : 0;
    }
    const auto n = static_cast<double>(end - begin);
    points.push_back({sum.x / n, sum.y / n});
  }
  return points;
}

std::string report_html(const Model& model, const ReportInput& input, const Dataset& names) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>{0}</title><style>\n"
      "body{{font:14px sans-serif;margin:24px;max-width:1100px}} figure{{display:inline-block;"
      "margin:8px}} svg text{{font-size:11px}} table{{border-collapse:collapse;margin:8px 0}} "
      "td,th{{padding:2px 10px;text-align:left;border-bottom:1px solid #ddd}}\n"
      "</style></head><body>\n<h1>{0}</h1>\n",
      escaped(input.title));
  const ModelOptions& o = model.options();
  out += fmt::format("<p>{}, {} loss, {} features, {}</p>\n", name(o.kind), name(o.loss),
                     model.layout().slots, name(o.optimizer));
  out += figures(input.result, o.loss);
  if (o.loss == Loss::kLogistic && !input.scores.empty()) out += plots(input.result, input);
  if (!input.epochs.empty()) out += loss_plot(input.epochs);
  if (!input.slices.empty()) {
    out += "<h2>By " + escaped(input.sliced_by) + "</h2>\n";
    std::vector<std::vector<std::string>> rows;
    for (const Slice& slice : input.slices) {
      const Evaluation& e = slice.result;
      rows.push_back({slice.what, fmt::format("{}", e.rows), fmt::format("{}", e.positives),
                      fmt::format("{:.6f}", e.log_loss), figure(e.normalised_entropy),
                      figure(e.auc), figure(e.calibration)});
    }
    out += table(
        {"slice", "rows", "positives", "log loss", "normalised entropy", "AUC", "calibration"},
        rows);
  }
  out += "<h2>Heaviest features</h2>\n";
  std::vector<std::vector<std::string>> rows;
  for (const HeavyFeature& feature : heaviest(model, 30)) {
    const auto named = names.names.find(feature.id);
    rows.push_back({named != names.names.end() ? named->second : fmt::format("{}", feature.id),
                    fmt::format("{:+.5f}", feature.weight),
                    fmt::format("{:.5f}", feature.factors)});
  }
  out += table({"feature", "weight", "length of its factors"}, rows);
  return out + "</body></html>\n";
}

}  // namespace motley::wide
