#include "runtime/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <string_view>

#include "comm/controller.h"
#include "comm/error.h"
#include "runtime/launch/controller_process.h"
#include "runtime/launch/environment.h"
#include "runtime/launch/supervisor.h"

namespace motley::runtime {
namespace {

constexpr int kMaxRanks = 1 << 16;

[[noreturn]] void reject(const std::string& what) {
  throw Error(ErrorCode::kInvalid, "motley-run: " + what);
}

void check(const LaunchOptions& options) {
  if (options.size < 1 || options.size > kMaxRanks) {
    reject(fmt::format("{} ranks are asked for. Use -n with a number in [1, {}].", options.size,
                       kMaxRanks));
  }
  for (const auto& [rank, factor] : options.slow) {
    if (rank < 0 || rank >= options.size) {
      reject(
          fmt::format("--slow names rank {}, but there are {} ranks, from 0.", rank, options.size));
    }
    if (!(factor >= 1 && factor <= 1e6)) {
      reject(fmt::format("--slow makes rank {} {:g} times slower. Use a factor in [1, 1e6].", rank,
                         factor));
    }
  }
  if (options.grace < Duration::zero() || options.timeout < Duration::zero()) {
    reject("a time is negative. Use seconds, 0 or more.");
  }
  if (options.command.empty()) reject("no program is given. Add: -- program arguments.");
}

// Where a name would be 0, 1 or 2, those streams would be taken for standard ones.
void open_standard_streams() {
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR)) {
    if (fd > STDERR_FILENO) {
      close(fd);
      return;
    }
  }
}

// Beside us as installed, in our sibling's folder as built, or anywhere in PATH.
std::string find_controller(const std::string& asked, std::string_view path) {
  constexpr const char* kName = "motley-controller";
  if (!asked.empty()) {
    const std::string found = find_program(asked, path);
    if (!found.empty()) return found;
    reject(fmt::format("--controller_program {} is not a program that can be run here.", asked));
  }
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  for (const auto& folder : {self.parent_path(), self.parent_path().parent_path() / "comm"}) {
    const std::string found = find_program((folder / kName).string(), {});
    if (!found.empty()) return found;
  }
  const std::string found = find_program(kName, path);
  if (!found.empty()) return found;
  reject(fmt::format("{} is neither beside {} nor in PATH. Name it with --controller_program.",
                     kName, self.string()));
}

}  // namespace

int launch(const LaunchOptions& options, const char* const* environment) {
  check(options);
  std::vector<std::string> ours;
  for (const char* const* entry = environment; *entry != nullptr; ++entry)
    ours.emplace_back(*entry);
  const std::string_view path = value_of(ours, "PATH");
  const std::string program = find_program(options.command.front(), path);
  if (program.empty()) {
    reject(
        fmt::format("\"{}\" is not a program that can be run here. Give the path of an "
                    "executable file, or a name that is in PATH.",
                    options.command.front()));
  }
  // A single rank has nobody to find.
  const std::string controller_program =
      options.size > 1 ? find_controller(options.controller_program, path) : "";

  // Two pipes a rank, and some for ourselves.
  const rlim_t open_files = allow_open_files(2 * static_cast<rlim_t>(options.size) + 64);
  open_standard_streams();
  SignalQueue signals;  // from here on none is lost between two processes
  Place place{.token = make_token()};
  std::deque<ControllerProcess> controllers;
  if (!controller_program.empty()) {
    std::vector<std::string> its = without_place(ours);
    its.push_back("MOTLEY_TOKEN=" + place.token);
    its.push_back("MOTLEY_SIZE=1");  // it is no rank, whatever scheduler we were started by
    controllers.emplace_back(controller_program, options.size, its);
    place.controller = controllers.front().address();
    if (options.standby) {
      controllers.emplace_back(controller_program, options.size, its, place.controller);
      place.controller += "," + controllers.back().address();
    }
  }
  const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing.is_open()) throw_errno("open /dev/null");
  Supervisor supervisor(options, signals, controllers);
  for (place.rank = 0; place.rank < options.size; ++place.rank) {
    const bool reads_ours = place.rank == 0 && isatty(STDIN_FILENO) == 0;
    supervisor.start({.program = program,
                      .arguments = options.command,
                      .environment = rank_environment(ours, place, options),
                      .in = reads_ours ? STDIN_FILENO : nothing.get(),
                      .open_files = open_files});
  }
  return supervisor.run();
}

}  // namespace motley::runtime
