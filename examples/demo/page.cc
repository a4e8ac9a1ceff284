// The page: inline SVG and style, no script, no network.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "examples/demo/report.h"

namespace demo {
namespace {

using motley::to_seconds;
using motley::runtime::Round;

constexpr double kWidth = 860, kHeight = 300, kLeft = 60, kBottom = 30, kTop = 10, kRight = 10;
constexpr const char* kSingleColour = "#777";
constexpr const char* kAllColour = "#c44e52";
constexpr const char* kPartialColour = "#2a7f62";

constexpr const char* kStyle = R"(<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:.3em .6em;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}
svg{width:100%;height:auto;font-size:12px}
.key span{display:inline-block;width:1em;height:1em;margin:0 .3em 0 1em;vertical-align:-.1em}
.big{font-size:1.3em}
</style>)";

// Maps data to a plot's pixels.
struct Axes {
  double x_max, y_min, y_max;
  double x(double value) const { return kLeft + value / x_max * (kWidth - kLeft - kRight); }
  double y(double value) const {
    const double share = (std::clamp(value, y_min, y_max) - y_min) / (y_max - y_min);
    return kHeight - kBottom - share * (kHeight - kTop - kBottom);
  }
};

std::string axes_svg(const Axes& axes) {
  std::string svg = fmt::format("<svg viewBox='0 0 {} {}'>", kWidth, kHeight);
  constexpr int kTicks = 5;
  for (int i = 0; i <= kTicks; ++i) {
    const double x = axes.x_max * i / kTicks;
    const double y = axes.y_min + (axes.y_max - axes.y_min) * i / kTicks;
    svg += fmt::format(
        "<line x1='{0}' x2='{1}' y1='{2:.1f}' y2='{2:.1f}' stroke='#eee'/>"
        "<text x='{3}' y='{4:.1f}' text-anchor='end'>{5:.4f}</text>"
        "<text x='{6:.1f}' y='{7}' text-anchor='middle'>{8:.3g} s</text>",
        kLeft, kWidth - kRight, axes.y(y), kLeft - 6, axes.y(y) + 4, y, axes.x(x), kHeight - 8, x);
  }
  return svg;
}

std::string curve_svg(const Axes& axes, const RunResult& run, const char* colour) {
  std::string points;
  for (const CurvePoint& point : run.curve) {
    points += fmt::format("{:.1f},{:.1f} ", axes.x(std::min(point.seconds, axes.x_max)),
                          axes.y(point.log_loss));
  }
  return fmt::format(
      "<polyline points='{}' fill='none' stroke='{}' stroke-width='1.5' opacity='.8'/>", points,
      colour);
}

// Loss over time, every repeat a line: single worker, all-reduce, partial-reduce.
std::string curves(const Report& report, int slow) {
  const double target = report.target();
  Axes axes{.x_max = 0, .y_min = target, .y_max = target * 1.06};
  const Result* const results[] = {&report.single, &report.all_reduce[slow],
                                   &report.partial_reduce[slow]};
  for (const Result* result : results) {
    for (const RunResult& run : result->runs) {
      axes.x_max = std::max(axes.x_max, run.curve.back().seconds);
      axes.y_min = std::min(axes.y_min, run.best_log_loss());
    }
  }
  axes.y_min -= (axes.y_max - axes.y_min) * 0.05;
  std::string svg = axes_svg(axes);
  svg += fmt::format(
      "<line x1='{0}' x2='{1}' y1='{2:.1f}' y2='{2:.1f}' stroke='#222' stroke-dasharray='4'/>"
      "<text x='{1}' y='{3:.1f}' text-anchor='end'>target {4:.5f}</text>",
      kLeft, kWidth - kRight, axes.y(target), axes.y(target) - 4, target);
  const char* const colours[] = {kSingleColour, kAllColour, kPartialColour};
  for (std::size_t i = 0; i < std::size(results); ++i) {
    for (const RunResult& run : results[i]->runs) svg += curve_svg(axes, run, colours[i]);
  }
  return svg + "</svg>\n";
}

std::string bar(double begin, double end, double window, double y, const char* colour) {
  const double scale = (kWidth - kLeft - kRight) / window;
  const double left = std::min(begin, window) * scale, right = std::min(end, window) * scale;
  if (right - left < 0.05) return "";
  return fmt::format("<rect x='{:.2f}' y='{:.0f}' width='{:.2f}' height='22' fill='{}'/>",
                     kLeft + left, y, right - left, colour);
}

// What each worker of a run did in the first `window` seconds.
std::string timeline(const RunResult& run, double window) {
  const double height = 30.0 * static_cast<double>(run.workers.size()) + 24;
  std::string svg = fmt::format("<svg viewBox='0 0 {} {}'>", kWidth, height);
  double y = 4;
  for (std::size_t rank = 0; rank < run.workers.size(); ++rank, y += 30) {
    svg += fmt::format("<text x='0' y='{:.0f}'>worker {}</text>", y + 16, rank);
    for (const Round& round : run.workers[rank].rounds) {
      const double start = to_seconds(round.start), computed = to_seconds(round.computed);
      const double together = to_seconds(round.together), end = to_seconds(round.end);
      if (start >= window) break;
      svg += bar(start, computed, window, y, "#8fbcd4");
      svg += bar(computed, together, window, y, "#e8b04a");
      svg += bar(together, end, window, y, "#2a7f62");
    }
  }
  svg += fmt::format("<text x='{}' y='{:.0f}'>0 s</text>", kLeft, height - 6);
  svg += fmt::format("<text x='{}' y='{:.0f}' text-anchor='end'>{:.2g} s</text>", kWidth - kRight,
                     height - 6, window);
  return svg + "</svg>\n";
}

std::string table(const Report& report) {
  std::string html =
      "<table><tr><th>method</th><th>workers</th><th>time to target</th><th>rows/s</th>"
      "<th>waiting, by worker</th><th>final log loss</th><th>AUC</th></tr>\n";
  for (const Result* result : report.all()) {
    const auto seconds = result->seconds_to(report.target());
    std::string waiting;
    for (const double share : result->waiting_shares()) {
      waiting += fmt::format("{:.0f} % ", 100 * share);
    }
    html += fmt::format(
        "<tr><td>{}</td><td>{}, {}</td><td>{}</td><td>{:.0f}</td><td>{}</td><td>{:.5f}</td>"
        "<td>{:.4f}</td></tr>\n",
        result->experiment.title, result->experiment.workers,
        result->experiment.slow ? "one slow" : "none slow",
        seconds ? fmt::format("{:.2f} s", *seconds) : "never", result->rows_per_second(), waiting,
        result->log_loss(), result->auc());
  }
  return html + "</table>\n";
}

std::string key(const std::vector<std::pair<const char*, const char*>>& entries) {
  std::string html = "<p class='key'>";
  for (const auto& [colour, text] : entries) {
    html += fmt::format("<span style='background:{}'></span>{}", colour, text);
  }
  return html + "</p>\n";
}

std::string escaped(const std::string& text) {
  std::string html;
  for (const char c : text) {
    html += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return html;
}

}  // namespace

std::string to_html(const Report& report) {
  const Settings& s = report.settings;
  std::string html =
      "<!doctype html><html lang='en'><meta charset='utf-8'>"
      "<title>Motley: partial-reduce and all-reduce</title>\n";
  html += kStyle;
  html += "<h1>What partial-reduce gains</h1>\n";
  html += fmt::format(
      "<p>A factorization machine (k = {}) on {}, trained by {} worker processes. A local step of "
      "a "
      "worker takes at least {:g} ms, reached by sleeping; a slow worker takes {:g} times as long. "
      "Models are averaged after each step, inside the clock; they are evaluated on the test rows "
      "afterwards. Time is to a test log loss of {:.5f}: the single worker's best + 0.1 %. Medians "
      "of {} repeats.</p>\n",
      s.factors, escaped(s.data), s.workers, 1e3 * s.base_step, s.slow, report.target(), s.repeats);
  html += fmt::format(
      "<p class='big'>With one worker {:g} times slower, partial-reduce is <b>{:.2f}</b> times as "
      "fast as all-reduce; with no slow worker, <b>{:.2f}</b> times.</p>\n",
      s.slow, report.speed_up(1), report.speed_up(0));
  html += table(report);
  for (const int slow : {1, 0}) {
    html += fmt::format("<h2>Test log loss over time, {}</h2>\n",
                        slow == 1 ? "one worker slow" : "no worker slow");
    html += key({{kSingleColour, "single worker"},
                 {kAllColour, "all-reduce"},
                 {kPartialColour, "partial-reduce"}});
    html += curves(report, slow);
  }
  const double window = s.base_step * s.slow * 12;
  for (const auto& [title, result] : {std::pair{"All-reduce", &report.all_reduce[1]},
                                      std::pair{"Partial-reduce", &report.partial_reduce[1]}}) {
    html += fmt::format("<h2>{} with one slow worker: the first {:.2g} s</h2>\n", title, window);
    html += key({{"#8fbcd4", "computing"}, {"#e8b04a", "waiting"}, {"#2a7f62", "averaging"}});
    html += timeline(result->runs[0], window);
  }
  return html + "</html>\n";
}

}  // namespace demo
