#include "wide/cli/command_line.h"

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <string_view>

namespace motley::wide {
namespace {

// The flag that `typed` names, or an empty string.
std::string full_name(std::string_view typed, const std::vector<std::string>& allowed) {
  for (const std::string& entry : allowed) {
    const std::size_t space = entry.find(' ');
    const std::string name = entry.substr(0, space);
    const bool second = space != std::string::npos && entry.substr(space + 1) == typed;
    if (name == typed || second) return name;
  }
  return "";
}

bool is_switch(const std::string& name) {
  return gflags::GetCommandLineFlagInfoOrDie(name.c_str()).type == "bool";
}

void set(const std::string& name, const std::string& value) {
  if (!gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) return;
  throw UsageError(fmt::format("--{} cannot be \"{}\": it takes a value of type {}", name, value,
                               gflags::GetCommandLineFlagInfoOrDie(name.c_str()).type));
}

}  // namespace

std::vector<std::string> parse_flags(std::span<char* const> arguments,
                                     const std::vector<std::string>& allowed) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--") {
      rest.insert(rest.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                  arguments.end());
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      rest.emplace_back(argument);
      continue;
    }
    std::string_view typed = argument.substr(argument[1] == '-' ? 2 : 1);
    const std::size_t equals = typed.find('=');
    const bool has_value = equals != std::string_view::npos;
    const std::string value(has_value ? typed.substr(equals + 1) : std::string_view{});
    typed = typed.substr(0, equals);
    std::string name = full_name(typed, allowed);
    if (name.empty() && !has_value && typed.substr(0, 2) == "no") {
      name = full_name(typed.substr(2), allowed);
      if (!name.empty() && is_switch(name)) {
        set(name, "false");
        continue;
      }
      name.clear();
    }
    if (name.empty()) throw UsageError(fmt::format("there is no flag {}", argument));
    if (has_value) {
      set(name, value);
    } else if (is_switch(name)) {
      set(name, "true");
    } else if (i + 1 < arguments.size()) {
      set(name, arguments[++i]);
    } else {
      throw UsageError(fmt::format("--{} needs a value", name));
    }
  }
  return rest;
}

}  // namespace motley::wide
