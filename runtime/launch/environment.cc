#include "runtime/launch/environment.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley::runtime {
namespace {

using std::string_view_literals::operator""sv;

bool is_variable(std::string_view entry, std::string_view name) {
  return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
}

void set(std::vector<std::string>& environment, std::string_view name, std::string_view value) {
  std::erase_if(environment, [name](const auto& entry) { return is_variable(entry, name); });
  environment.push_back(fmt::format("{}={}", name, value));
}

}  // namespace

std::string_view value_of(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (is_variable(entry, name)) return std::string_view(entry).substr(name.size() + 1);
  }
  return {};
}

std::vector<std::string> without_place(std::vector<std::string> environment) {
  for (const std::string_view name : {"MOTLEY_RANK"sv, "MOTLEY_SIZE"sv, "MOTLEY_CONTROLLER"sv,
                                      "MOTLEY_TOKEN"sv, "MOTLEY_SLOW"sv}) {
    std::erase_if(environment, [name](const auto& entry) { return is_variable(entry, name); });
  }
  return environment;
}

std::vector<std::string> rank_environment(std::vector<std::string> environment, const Place& place,
                                          const LaunchOptions& options) {
  environment = without_place(std::move(environment));
  set(environment, "MOTLEY_RANK", std::to_string(place.rank));
  set(environment, "MOTLEY_SIZE", std::to_string(options.size));
  set(environment, "MOTLEY_TOKEN", place.token);
  if (!place.controller.empty()) set(environment, "MOTLEY_CONTROLLER", place.controller);
  const auto slow = options.slow.find(place.rank);
  if (slow != options.slow.end()) set(environment, "MOTLEY_SLOW", fmt::format("{}", slow->second));
  if (!options.transport.empty()) set(environment, "MOTLEY_TRANSPORT", options.transport);
  if (!options.interface.empty()) set(environment, "MOTLEY_IFACE", options.interface);
  if (options.timeout > Duration::zero()) {
    set(environment, "MOTLEY_TIMEOUT", fmt::format("{}", to_seconds(options.timeout)));
  }
  return environment;
}

}  // namespace motley::runtime
