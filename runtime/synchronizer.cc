#include "runtime/synchronizer.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "comm/error.h"
#include "runtime/synchronizer/methods.h"

namespace motley::runtime {
namespace {

class Alone final : public Synchronizer {
 public:
  explicit Alone(Communicator& comm) : rank_(comm.rank()) {}
  const char* name() const noexcept override { return "none"; }
  SyncReport average(View, std::int64_t) override { return {.group = {rank_}}; }
  SyncReport finish(View) override { return {.group = {rank_}}; }
  bool survives_loss() const noexcept override { return true; }

 private:
  int rank_;
};

std::unique_ptr<Synchronizer> make_none(Communicator& comm, const SynchronizerOptions&) {
  return std::make_unique<Alone>(comm);
}

using Make = std::unique_ptr<Synchronizer> (*)(Communicator&, const SynchronizerOptions&);
constexpr std::array<std::pair<const char*, Make>, 10> kMethods = {{
    {"none", make_none},
    {"all_reduce", make_all_reduce},
    {"local_sgd", make_local_sgd},
    {"partial_reduce", make_partial_reduce},
    {"ad_psgd", make_ad_psgd},
    {"backup_workers", make_backup_workers},
    {"parameter_server", make_parameter_server},
    {"eager_solo", make_eager_solo},
    {"eager_majority", make_eager_majority},
    {"wait_avoiding", make_wait_avoiding},
}};

void check(const Communicator& comm, const SynchronizerOptions& options) {
  if (options.timeout < Duration{} || options.finish_timeout <= Duration{}) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("synchronizer: timeouts of {} s, and {} s at the end. Use times above "
                            "0; 0 for the first means Options::timeout.",
                            to_seconds(options.timeout), to_seconds(options.finish_timeout)));
  }
  const auto require = [](const char* option, int value, int least) {
    if (value >= least) return;
    throw Error(ErrorCode::kInvalid,
                fmt::format("synchronizer: {} is {}. Use {} or more.", option, value, least));
  };
  require("local_steps", options.local_steps, 1);
  require("staleness", options.staleness, 0);
  require("sync_rounds", options.sync_rounds, 1);
  require("backup", options.backup, 0);
  if (options.group_size < 0 || options.group_size == 1) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("synchronizer: group_size is {}. Use 2 or more; partial_reduce takes 0, "
                    "which adapts it.",
                    options.group_size));
  }
  if (options.backup >= comm.size() && comm.size() > 1) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("synchronizer: backup is {} of {} workers. Use fewer than all.",
                            options.backup, comm.size()));
  }
}

}  // namespace

std::vector<std::string> synchronizer_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : kMethods) names.emplace_back(name);
  return names;
}

std::unique_ptr<Synchronizer> make_synchronizer(const std::string& name, Communicator& comm,
                                                const SynchronizerOptions& options) {
  check(comm, options);
  SynchronizerOptions settled = options;
  if (settled.timeout == Duration{}) settled.timeout = comm.options().timeout;
  std::string names;
  for (const auto& [method, make] : kMethods) {
    if (name == method) return make(comm, settled);
    names += (names.empty() ? "" : ", ") + std::string(method);
  }
  throw Error(ErrorCode::kInvalid,
              fmt::format("there is no synchronizer '{}'. Use one of: {}.", name, names));
}

}  // namespace motley::runtime
