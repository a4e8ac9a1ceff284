// The text form of a topology: topology.h has its grammar.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>

#include "comm/error.h"
#include "comm/topology.h"

namespace motley {
namespace {

constexpr std::string_view kHeading = "motley topology 1";
constexpr int kMaxNumber = (1 << 20) - 1;

std::vector<std::string_view> words_of(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  constexpr std::string_view kBlanks = " \t\r";
  for (std::size_t at = line.find_first_not_of(kBlanks); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kBlanks, end);
  }
  return words;
}

class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  Topology parse(std::string_view text) {
    for (std::size_t begin = 0; begin <= text.size(); ++line_) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      words_ = words_of(text.substr(begin, end - begin));
      if (!words_.empty()) statement();
      begin = end + 1;
    }
    if (!headed_) fail(fmt::format("it does not begin with \"{}\".", kHeading));
    try {
      return Topology(std::move(hosts_), costs_, std::move(links_));
    } catch (const Error& error) {
      throw Error(ErrorCode::kInvalid, fmt::format("{}: {}", file_, error.what()));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::kInvalid, fmt::format("{}:{}: {}", file_, line_, why));
  }

  auto speed(double& bytes_per_second) {
    return [&, this](std::string_view name, std::string_view value) {
      if (name != "bytes_per_second") return false;
      bytes_per_second = real(value);
      return true;
    };
  }

  auto time(Duration& wanted) {
    return [&, this](std::string_view name, std::string_view value) {
      if (name == "time_us") wanted = microseconds(value);
      return name == "time_us";
    };
  }

  auto link_settings(Link& link) {
    return [&, this](std::string_view name, std::string_view value) {
      if (name == "latency_us")
        link.latency = microseconds(value);
      else if (name == "message_us")
        link.per_message = microseconds(value);
      else if (name == "bytes_per_second")
        link.bytes_per_second = real(value);
      else
        return false;
      return true;
    };
  }

  void statement() {
    if (!headed_) {
      if (fmt::format("{}", fmt::join(words_, " ")) != kHeading)
        fail(fmt::format("expected \"{}\" first.", kHeading));
      headed_ = true;
      return;
    }
    const std::string_view what = words_.front();
    if (what == "reduce") return settings(1, speed(costs_.reduce_bytes_per_second));
    if (what == "copy") return settings(1, speed(costs_.copy_bytes_per_second));
    if (what == "call") return settings(1, time(costs_.per_call));
    if (what == "turn") return settings(1, time(costs_.per_turn));
    if (what == "within") return settings(1, link_settings(costs_.within));
    if (what == "across") return settings(1, link_settings(costs_.across));
    if (what == "between") return settings(1, link_settings(costs_.between));
    if (what == "host") return host();
    if (what == "link") return link();
    fail(fmt::format(
        "\"{}\" is no statement. Use reduce, copy, call, turn, within, across, between, host or "
        "link.",
        what));
  }

  void host() {
    if (words_.size() < 2) fail("a host has no name.");
    Host& host = hosts_.emplace_back(Host{.name = std::string(words_[1])});
    settings(2, [&](std::string_view name, std::string_view value) {
      if (name == "ranks")
        host.ranks = numbers(value);
      else if (name == "sockets")
        host.socket = numbers(value);
      else if (name == "cores")
        host.cores = number(value);
      else if (name == "ports")
        host.ports = number(value);
      else if (name == "bytes_per_second")
        host.port_bytes_per_second = real(value);
      else
        return false;
      return true;
    });
    if (host.ranks.empty()) fail(fmt::format("host {} has no ranks=.", host.name));
  }

  void link() {
    if (words_.size() < 3) fail("a link does not name two hosts.");
    const int a = host_called(words_[1]);
    const int b = host_called(words_[2]);
    HostLink& link = links_.emplace_back(HostLink{a, b, costs_.between});
    settings(3, link_settings(link.link));
  }

  int host_called(std::string_view name) const {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (hosts_[i].name == name) return static_cast<int>(i);
    }
    fail(fmt::format("there is no host {} above this line.", name));
  }

  // Hands each name=value from the word at `first` on to `take`, which says whether it knows it.
  template <class Take>
  void settings(std::size_t first, const Take& take) {
    for (std::size_t i = first; i < words_.size(); ++i) {
      const std::size_t equals = words_[i].find('=');
      if (equals == std::string_view::npos)
        fail(fmt::format("\"{}\" is not of the form name=value.", words_[i]));
      const std::string_view name = words_[i].substr(0, equals);
      if (!take(name, words_[i].substr(equals + 1)))
        fail(fmt::format("\"{}\" is no setting of {}.", name, words_.front()));
    }
  }

  template <class T>
  bool read(std::string_view text, T& value) const {
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    return problem == std::errc() && end == text.data() + text.size();
  }

  double real(std::string_view text) const {
    double value = 0;
    if (!read(text, value) || !std::isfinite(value))
      fail(fmt::format("\"{}\" is no number.", text));
    return value;
  }

  int number(std::string_view text) const {
    int value = 0;
    if (!read(text, value) || value < 0 || value > kMaxNumber)
      fail(fmt::format("\"{}\" is not a whole number in [0, {}].", text, kMaxNumber));
    return value;
  }

  Duration microseconds(std::string_view text) const {
    const double us = real(text);
    if (us < 0 || us > 1e12)
      fail(fmt::format("\"{}\" us is no time in [0, 1e12] microseconds.", text));
    return Duration(std::llround(us * 1e3));
  }

  // "0-3,8": numbers and ranges.
  std::vector<int> numbers(std::string_view text) const {
    std::vector<int> list;
    while (true) {
      const std::size_t comma = std::min(text.find(','), text.size());
      const std::string_view item = text.substr(0, comma);
      const std::size_t dash = item.find('-');
      const int first = number(item.substr(0, dash));
      const int last = dash == std::string_view::npos ? first : number(item.substr(dash + 1));
      if (last < first) fail(fmt::format("the range {} is upside down.", item));
      if (list.size() + static_cast<std::size_t>(last - first) > kMaxNumber)
        fail(fmt::format("more than {} numbers are given.", kMaxNumber));
      for (int i = first; i <= last; ++i) list.push_back(i);
      if (comma == text.size()) return list;
      text.remove_prefix(comma + 1);
    }
  }

  const std::string& file_;
  int line_ = 1;
  bool headed_ = false;
  std::vector<std::string_view> words_;
  std::vector<Host> hosts_;
  TopologyCosts costs_;
  std::vector<HostLink> links_;
};

std::string text_of(const Link& link) {
  return fmt::format("latency_us={} message_us={} bytes_per_second={}",
                     static_cast<double>(link.latency.count()) / 1e3,
                     static_cast<double>(link.per_message.count()) / 1e3, link.bytes_per_second);
}

// "0-3,8".
std::string text_of(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += text.empty() ? "" : ",";
    text +=
        last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

Topology Topology::parse(std::string_view text, const std::string& file) {
  return Parser(file).parse(text);
}

Topology Topology::read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw_errno("open " + path);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) throw_errno("read " + path);
  return parse(text, path);
}

std::string Topology::to_text() const {
  std::string text = fmt::format(
      "{}\nreduce bytes_per_second={}\ncopy bytes_per_second={}\ncall time_us={}\nturn "
      "time_us={}\nwithin {}\nacross {}\nbetween {}\n",
      kHeading, costs_.reduce_bytes_per_second, costs_.copy_bytes_per_second,
      static_cast<double>(costs_.per_call.count()) / 1e3,
      static_cast<double>(costs_.per_turn.count()) / 1e3, text_of(costs_.within),
      text_of(costs_.across), text_of(costs_.between));
  for (const Host& host : hosts_) {
    text += fmt::format("host {} ranks={}", host.name, text_of(host.ranks));
    if (!host.socket.empty()) text += " sockets=" + text_of(host.socket);
    if (host.cores != 0) text += fmt::format(" cores={}", host.cores);
    if (host.ports != 0) text += fmt::format(" ports={}", host.ports);
    if (host.port_bytes_per_second != 0)
      text += fmt::format(" bytes_per_second={}", host.port_bytes_per_second);
    text += '\n';
  }
  const auto name = [this](int host) { return hosts_[static_cast<std::size_t>(host)].name; };
  for (const HostLink& own : links_)
    text += fmt::format("link {} {} {}\n", name(own.a), name(own.b), text_of(own.link));
  return text;
}

}  // namespace motley
