#include "comm/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "comm/error.h"

namespace motley {
namespace {

constexpr double kMaxSeconds = 1e6;  // eleven days; keeps sums of durations far from overflow

[[noreturn]] void reject(const char* variable, std::string_view value, const std::string& range) {
  throw Error(ErrorCode::kInvalid,
              fmt::format("options: {} is \"{}\". Use {}.", variable, value, range));
}

template <class T>
bool parse(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

// Each of these leaves `value` alone if the variable is not set. An empty variable counts as not
// set, because that is how shells and job files write "nothing".
const char* lookup(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

void read(const char* variable, std::string& value) {
  if (const char* text = lookup(variable)) value = text;
}

void read(const char* variable, std::string& value, std::initializer_list<const char*> choices) {
  const char* text = lookup(variable);
  if (text == nullptr) return;
  if (std::find(choices.begin(), choices.end(), std::string_view(text)) == choices.end()) {
    reject(variable, text, fmt::format("one of {}", fmt::join(choices, ", ")));
  }
  value = text;
}

template <class T>
void read_integer(const char* variable, T& value, std::int64_t low, std::int64_t high) {
  const char* text = lookup(variable);
  if (text == nullptr) return;
  std::int64_t number = 0;
  if (!parse<std::int64_t>(text, number) || number < low || number > high) {
    reject(variable, text, fmt::format("a whole number in [{}, {}]", low, high));
  }
  value = static_cast<T>(number);
}

void read_number(const char* variable, double& value, double low, double high) {
  const char* text = lookup(variable);
  if (text == nullptr) return;
  double number = 0;
  if (!parse(text, number) || !(number >= low && number <= high)) {
    reject(variable, text, fmt::format("a number in [{}, {}]", low, high));
  }
  value = number;
}

void read_seconds(const char* variable, Duration& value) {
  double number = to_seconds(value);
  read_number(variable, number, 1e-3, kMaxSeconds);
  value = seconds(number);
}

}  // namespace

Options Options::from_environment() {
  constexpr int kMaxRanks = 1 << 16;
  Options options;
  read_integer("MOTLEY_SIZE", options.size, 1, kMaxRanks);
  read_integer("MOTLEY_RANK", options.rank, 0, options.size - 1);
  read("MOTLEY_CONTROLLER", options.controller);
  read("MOTLEY_TOKEN", options.token);
  read_number("MOTLEY_SLOW", options.slow, 1, 1e6);
  read("MOTLEY_TRANSPORT", options.transport, {"auto", "shm", "ucx"});
  read("MOTLEY_ALGORITHM", options.algorithm, {"auto", "direct", "ring", "halving_doubling"});
  read_seconds("MOTLEY_TIMEOUT", options.timeout);
  read_seconds("MOTLEY_JOIN_TIMEOUT", options.join_timeout);
  read_seconds("MOTLEY_HEARTBEAT", options.heartbeat);
  read_seconds("MOTLEY_LEASE", options.lease);
  read_integer("MOTLEY_SEGMENT_BYTES", options.segment_bytes, 64, std::int64_t{1} << 30);
  read_integer("MOTLEY_LOG_LEVEL", options.log_level, 0, 3);
  if (options.lease < 2 * options.heartbeat) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("options: MOTLEY_LEASE is {} s, but MOTLEY_HEARTBEAT is {} s. Make the lease "
                    "at least twice as long, or a rank in good health counts as dead.",
                    to_seconds(options.lease), to_seconds(options.heartbeat)));
  }
  if (options.size > 1 && options.controller.empty()) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("options: MOTLEY_SIZE is {}, but MOTLEY_CONTROLLER is not set. Start the "
                    "ranks with motley-run, or set it to tcp://host:port.",
                    options.size));
  }
  return options;
}

std::string Options::to_text() const {
  std::string text;
  const auto line = [&text](const char* name, const std::string& value, const char* variable) {
    text += fmt::format("{:<14} {:<24} {}\n", name, value, variable);
  };
  const auto time = [](Duration duration) { return fmt::format("{} s", to_seconds(duration)); };
  line("rank", std::to_string(rank), "MOTLEY_RANK");
  line("size", std::to_string(size), "MOTLEY_SIZE");
  line("controller", controller.empty() ? "none" : controller, "MOTLEY_CONTROLLER");
  line("token", token.empty() ? "none" : "set", "MOTLEY_TOKEN");  // a secret: never printed
  line("slow", fmt::format("{}", slow), "MOTLEY_SLOW");
  line("transport", transport, "MOTLEY_TRANSPORT");
  line("algorithm", algorithm, "MOTLEY_ALGORITHM");
  line("timeout", time(timeout), "MOTLEY_TIMEOUT");
  line("join_timeout", time(join_timeout), "MOTLEY_JOIN_TIMEOUT");
  line("heartbeat", time(heartbeat), "MOTLEY_HEARTBEAT");
  line("lease", time(lease), "MOTLEY_LEASE");
  line("segment_bytes", std::to_string(segment_bytes), "MOTLEY_SEGMENT_BYTES");
  line("log_level", std::to_string(log_level), "MOTLEY_LOG_LEVEL");
  return text;
}

}  // namespace motley
