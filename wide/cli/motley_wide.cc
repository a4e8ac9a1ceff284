// motley-wide: trains a wide model on click data, predicts with it, evaluates it.
// Exit code 0: done; 1: an error; 2: misuse.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/version.h"
#include "wide/cli/command_line.h"
#include "wide/cli/commands.h"
#include "wide/cli/help.h"
#include "wide/option_error.h"

namespace motley::wide {
namespace {

struct Command {
  const char* name;
  const char* help;
  std::vector<std::string> flags;
  std::function<void(const std::vector<std::string>&)> run;
};

// What all commands that read data take.
std::vector<std::string> with_data(std::vector<std::string> flags) {
  const char* const data[] = {"format",  "schema", "delimiter", "bits",
                              "weights", "cache",  "quiet q",   "threads t"};
  flags.insert(flags.end(), std::begin(data), std::end(data));
  return flags;
}

// clang-format off
std::vector<Command> all_commands() {
  return {{"train", kTrainHelp,
           with_data({"model m", "k", "loss", "optimizer", "epochs e", "lr r", "lr_factors",
                      "l1", "l2", "l1_factors", "l2_factors", "prior", "average", "init_scale",
                      "batch b", "deterministic", "device", "seed s", "normalise", "validate",
                      "patience", "output o", "sync", "group_size", "sync_rows",
                      "initial_model i", "holdout", "folds", "online", "online_rows",
                      "positive_weight", "negative_rate", "report", "shard", "shard_hot",
                      "shard_copies", "shard_early", "shard_staleness", "disk", "disk_rows"}),
           train},
          {"predict", kPredictHelp, with_data({"output o"}), predict},
          {"eval", kEvalHelp, with_data({"by", "report"}), eval},
          {"convert", kConvertHelp, with_data({"output o", "normalise"}), convert},
          {"inspect", kInspectHelp, with_data({"top"}), inspect},
          {"serve", kServeHelp,
           {"host", "port p", "deadline_ms", "batch_rows", "waiting_rows", "connections",
            "threads t", "quiet q"},
           serve}};
}
// clang-format on

// What the user knows an option as.
std::string flag_of(const std::string& option) {
  const std::pair<const char*, const char*> others[] = {{"factors", "k"},
                                                        {"learning_rate", "lr"},
                                                        {"learning_rate_factors", "lr_factors"},
                                                        {"prior_factors", "prior"},
                                                        {"batch_rows", "batch"}};
  for (const auto& [name, flag] : others) {
    if (option == name) return flag;
  }
  return option;
}

int run_command(std::span<char* const> arguments) {
  const std::vector<Command> commands = all_commands();
  const std::string first = arguments.empty() ? "" : arguments[0];
  if (first == "--help" || first == "-h" || first == "help") {
    fmt::print("{}", kUsage);
    return 0;
  }
  if (first == "formats") {
    fmt::print("{}", kFormatsHelp);
    return 0;
  }
  if (first == "--version") {
    fmt::print("motley-wide {}\n", version_text());
    return 0;
  }
  const auto command = std::find_if(commands.begin(), commands.end(),
                                    [&](const Command& c) { return c.name == first; });
  if (command == commands.end()) {
    fmt::print(
        stderr, "motley-wide: {}\n{}",
        first.empty() ? "a command is missing" : fmt::format("there is no command \"{}\"", first),
        kUsage);
    return 2;
  }
  const auto rest = arguments.subspan(1);
  const auto asks_help = [](const char* a) {
    return std::string(a) == "--help" || std::string(a) == "-h";
  };
  if (std::any_of(rest.begin(), rest.end(), asks_help)) {
    fmt::print("{}", command->help);
    return 0;
  }
  command->run(parse_flags(rest, command->flags));
  return 0;
}

}  // namespace
}  // namespace motley::wide

int main(int argc, char** argv) {
  try {
    return motley::wide::run_command({argv + 1, static_cast<std::size_t>(std::max(argc - 1, 0))});
  } catch (const motley::wide::UsageError& e) {
    fmt::print(stderr, "motley-wide: {}. Try --help\n", e.what());
    return 2;
  } catch (const motley::wide::OptionError& e) {
    fmt::print(stderr, "motley-wide: --{} {}. Try --help\n", motley::wide::flag_of(e.option()),
               e.problem());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "motley-wide: {}\n", e.what());
    return 1;
  }
}
