#include "moe/text/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "comm/error.h"

namespace motley::moe {

Settings::Settings(std::string who, std::string_view text) : who_(std::move(who)) {
  constexpr std::string_view kBetween = " ,\t\n";
  for (std::size_t at = text.find_first_not_of(kBetween); at != text.npos;
       at = text.find_first_not_of(kBetween, at)) {
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view part = text.substr(at, end - at);
    const std::size_t equals = part.find('=');
    if (equals == part.npos) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("{}: \"{}\" has no value. Write name=value.", who_, part));
    }
    if (!given_.emplace(part.substr(0, equals), part.substr(equals + 1)).second) {
      throw Error(ErrorCode::kInvalid, fmt::format("{}: {} is given twice. Give it once.", who_,
                                                   part.substr(0, equals)));
    }
    at = end;
  }
}

void Settings::finish() const {
  if (given_.empty()) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("{}: there is no option \"{}\". Options are {}.", who_,
                          given_.begin()->first, fmt::join(read_, ", ")));
}

std::optional<std::string> Settings::take(std::string_view name) {
  read_.emplace_back(name);
  const auto found = given_.find(name);
  if (found == given_.end()) return std::nullopt;
  std::string value = std::move(found->second);
  given_.erase(found);
  return value;
}

void Settings::refuse(std::string_view name, const std::string& value,
                      const std::vector<std::string>& known) const {
  throw Error(ErrorCode::kInvalid, fmt::format("{}: {} is \"{}\". Give {}.", who_, name, value,
                                               fmt::join(known, " or ")));
}

}  // namespace motley::moe
