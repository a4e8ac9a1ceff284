#include "comm/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "comm/algorithm/families.h"
#include "comm/bootstrap/endpoint.h"
#include "comm/bootstrap/identity.h"
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

// Each read leaves `value` alone if the variable is not set. An empty variable counts as not set,
// because that is how shells and job files write "nothing".
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  const char* lookup(const char* variable) const {
    const char* text = environment_(variable);
    return text != nullptr && *text != '\0' ? text : nullptr;
  }

  void text(const char* variable, std::string& value) const {
    if (const char* found = lookup(variable)) value = found;
  }

  void choice(const char* variable, std::string& value,
              const std::vector<std::string_view>& choices) const {
    const char* found = lookup(variable);
    if (found == nullptr) return;
    if (std::find(choices.begin(), choices.end(), std::string_view(found)) == choices.end()) {
      reject(variable, found, fmt::format("one of {}", fmt::join(choices, ", ")));
    }
    value = found;
  }

  void onoff(const char* variable, bool& value) const {
    std::string text = value ? "on" : "off";
    choice(variable, text, {"on", "off"});
    value = text == "on";
  }

  template <class T>
  void integer(const char* variable, T& value, std::int64_t low, std::int64_t high) const {
    const char* found = lookup(variable);
    if (found == nullptr) return;
    std::int64_t number = 0;
    if (!parse<std::int64_t>(found, number) || number < low || number > high) {
      reject(variable, found, fmt::format("a whole number in [{}, {}]", low, high));
    }
    value = static_cast<T>(number);
  }

  void number(const char* variable, double& value, double low, double high) const {
    const char* found = lookup(variable);
    if (found == nullptr) return;
    double number = 0;
    if (!parse(found, number) || !(number >= low && number <= high)) {
      reject(variable, found, fmt::format("a number in [{}, {}]", low, high));
    }
    value = number;
  }

  void duration(const char* variable, Duration& value) const {
    double number_of_seconds = to_seconds(value);
    number(variable, number_of_seconds, 1e-3, kMaxSeconds);
    value = seconds(number_of_seconds);
  }

 private:
  const Environment& environment_;
};

// What a scheduler says, where nobody said MOTLEY_RANK. MOTLEY_SIZE=1 is how a program started by a
// scheduler is told to stay alone. Returns what to do if it is not told where to meet.
std::string take_identity(const Environment& environment, const Reader& read, Options& options) {
  const char* const usual =
      "Start the ranks with motley-run, or set it to tcp://host:port, "
      "rank0://host:port or file:/path.";
  const bool alone = read.lookup("MOTLEY_SIZE") != nullptr && options.size == 1;
  if (read.lookup("MOTLEY_RANK") != nullptr || alone) return usual;
  const auto identity = identity_from(environment);
  if (!identity) return usual;
  if (read.lookup("MOTLEY_SIZE") != nullptr && options.size != identity->size) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("options: MOTLEY_SIZE is {}, but {} started {} ranks. Unset it, or set "
                            "MOTLEY_RANK as well.",
                            options.size, identity->scheduler, identity->size));
  }
  options.rank = identity->rank;
  options.size = identity->size;
  options.controller = identity->controller;
  // Keeps the jobs of a host apart; whoever can see the environment of a rank knows it.
  options.token = identity->job;
  return fmt::format(
      "{} does not tell {} ranks where rank 0 is. Set it to rank0://host:port with "
      "the host of rank 0, or to file:/path on a file system that all hosts share.",
      identity->scheduler, options.size);
}

void check(const Options& options, const std::string& where_to_meet) {
  if (options.lease < 2 * options.heartbeat) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("options: MOTLEY_LEASE is {} s, but MOTLEY_HEARTBEAT is {} s. Make the lease "
                    "at least twice as long, or a rank in good health counts as dead.",
                    to_seconds(options.lease), to_seconds(options.heartbeat)));
  }
  if (options.ucx_device == "direct" && options.transport == "shm") {
    throw Error(ErrorCode::kInvalid,
                "options: MOTLEY_UCX_DEVICE is \"direct\", but MOTLEY_TRANSPORT \"shm\", without "
                "UCX. Use MOTLEY_TRANSPORT=ucx.");
  }
  if (options.size > 1 && options.controller.empty()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("options: MOTLEY_SIZE is {}, but MOTLEY_CONTROLLER is not set. {}",
                            options.size, where_to_meet));
  }
}

}  // namespace

Options Options::from_environment() {
  return from_environment([](const char* variable) { return std::getenv(variable); });
}

Options Options::from_environment(const Environment& environment) {
  const Reader read(environment);
  Options options;
  read.integer("MOTLEY_SIZE", options.size, 1, kMaxRanks);
  read.integer("MOTLEY_RANK", options.rank, 0, options.size - 1);
  const std::string where_to_meet = take_identity(environment, read, options);
  read.text("MOTLEY_CONTROLLER", options.controller);
  read.text("MOTLEY_TOKEN", options.token);
  read.number("MOTLEY_SLOW", options.slow, 1, 1e6);
  read.choice("MOTLEY_TRANSPORT", options.transport, {"auto", "shm", "ucx"});
  std::vector<std::string_view> algorithms = algorithm_names();
  algorithms.insert(algorithms.begin(), "auto");
  read.choice("MOTLEY_ALGORITHM", options.algorithm, algorithms);
  read.choice("MOTLEY_CMA", options.cma, {"auto", "off"});
  read.text("MOTLEY_TOPOLOGY", options.topology);
  read.text("MOTLEY_IFACE", options.interface);
  read.text("MOTLEY_PORTS", options.ports);
  read.text("MOTLEY_HOST", options.host);
  read.duration("MOTLEY_TIMEOUT", options.timeout);
  read.duration("MOTLEY_JOIN_TIMEOUT", options.join_timeout);
  read.duration("MOTLEY_HEARTBEAT", options.heartbeat);
  read.duration("MOTLEY_LEASE", options.lease);
  read.text("MOTLEY_DUMP", options.dump);
  read.onoff("MOTLEY_PROGRESS_THREAD", options.progress_thread);
  read.integer("MOTLEY_SEGMENT_BYTES", options.segment_bytes, 64, std::int64_t{1} << 30);
  read.integer("MOTLEY_STAGING_SLOTS", options.staging_slots, 1, 1024);
  read.integer("MOTLEY_STAGING_BYTES", options.staging_bytes, 0, std::int64_t{1} << 40);
  read.integer("MOTLEY_UCX_WINDOW", options.ucx_window, 0, std::int64_t{1} << 40);
  read.integer("MOTLEY_UCX_RENDEZVOUS", options.ucx_rendezvous, -1, std::int64_t{1} << 40);
  read.choice("MOTLEY_UCX_DEVICE", options.ucx_device, {"auto", "direct", "staged"});
  read.choice("MOTLEY_NCCL", options.nccl, {"off", "stable", "all"});
  read.integer("MOTLEY_NCCL_SCRATCH", options.nccl_scratch, 1 << 16, std::int64_t{1} << 40);
  read.integer("MOTLEY_LOG_LEVEL", options.log_level, 0, 3);
  (void)PortRange::parse(options.ports);
  check(options, where_to_meet);
  return options;
}

void Options::tell(LogLevel level, const std::string& text) const {
  if (log && static_cast<int>(level) >= log_level) log(level, text);
}

std::string Options::to_text() const {
  std::string text;
  const auto line = [&text](const char* name, const std::string& value, const char* variable) {
    text += fmt::format("{:<15} {:<24} {}\n", name, value, variable);
  };
  const auto time = [](Duration duration) { return fmt::format("{} s", to_seconds(duration)); };
  line("rank", std::to_string(rank), "MOTLEY_RANK");
  line("size", std::to_string(size), "MOTLEY_SIZE");
  line("controller", controller.empty() ? "none" : controller, "MOTLEY_CONTROLLER");
  line("token", token.empty() ? "none" : "set", "MOTLEY_TOKEN");  // a secret: never printed
  line("slow", fmt::format("{}", slow), "MOTLEY_SLOW");
  line("transport", transport, "MOTLEY_TRANSPORT");
  line("algorithm", algorithm, "MOTLEY_ALGORITHM");
  line("cma", cma, "MOTLEY_CMA");
  line("topology", topology, "MOTLEY_TOPOLOGY");
  line("interface", interface.empty() ? "by route" : interface, "MOTLEY_IFACE");
  line("ports", ports.empty() ? "any" : ports, "MOTLEY_PORTS");
  line("host", host.empty() ? "found out" : host, "MOTLEY_HOST");
  line("timeout", time(timeout), "MOTLEY_TIMEOUT");
  line("join_timeout", time(join_timeout), "MOTLEY_JOIN_TIMEOUT");
  line("heartbeat", time(heartbeat), "MOTLEY_HEARTBEAT");
  line("lease", time(lease), "MOTLEY_LEASE");
  line("dump", dump.empty() ? "none" : dump, "MOTLEY_DUMP");
  line("progress_thread", progress_thread ? "on" : "off", "MOTLEY_PROGRESS_THREAD");
  line("segment_bytes", std::to_string(segment_bytes), "MOTLEY_SEGMENT_BYTES");
  line("staging_slots", std::to_string(staging_slots), "MOTLEY_STAGING_SLOTS");
  line("staging_bytes", std::to_string(staging_bytes), "MOTLEY_STAGING_BYTES");
  line("ucx_window", std::to_string(ucx_window), "MOTLEY_UCX_WINDOW");
  line("ucx_rendezvous", ucx_rendezvous < 0 ? "by link" : std::to_string(ucx_rendezvous),
       "MOTLEY_UCX_RENDEZVOUS");
  line("ucx_device", ucx_device, "MOTLEY_UCX_DEVICE");
  line("nccl", nccl, "MOTLEY_NCCL");
  line("nccl_scratch", std::to_string(nccl_scratch), "MOTLEY_NCCL_SCRATCH");
  line("log_level", std::to_string(log_level), "MOTLEY_LOG_LEVEL");
  return text;
}

}  // namespace motley
