// moe/text/settings.h: options read from "name=value name=value", with spaces or commas between.
// Every name that exists is read once; whatever is left is an error.
//
//   Settings settings("moe capacity", "factor=1.25 order=priority");
//   settings.number("factor", rule.factor);
//   settings.choice("order", kOrders, rule.order);
//   settings.finish();
#pragma once

#include <charconv>
#include <concepts>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace motley::moe {

template <class T>
using Names = std::span<const std::pair<std::string_view, T>>;

class Settings {
 public:
  // Throws kInvalid on a part without "=", or a name that comes twice.
  Settings(std::string who, std::string_view text);

  // Sets `value` if `name` was given. Throws kInvalid on text that is not of its type.
  template <class T>
  requires std::integral<T> || std::floating_point<T>
  void number(std::string_view name, T& value) {
    const std::optional<std::string> text = take(name);
    if (!text) return;
    const char* end = text->data() + text->size();
    const auto [rest, error] = std::from_chars(text->data(), end, value);
    if (error != std::errc() || rest != end) refuse(name, *text, {"a number in range"});
  }
  template <class T>
  void choice(std::string_view name, Names<T> names, T& value) {
    const std::optional<std::string> text = take(name);
    if (!text) return;
    std::vector<std::string> known;
    for (const auto& [known_name, known_value] : names) {
      if (*text == known_name) return void(value = known_value);
      known.emplace_back(known_name);
    }
    refuse(name, *text, known);
  }
  // Throws kInvalid if a name was given that nobody read.
  void finish() const;

 private:
  std::optional<std::string> take(std::string_view name);
  [[noreturn]] void refuse(std::string_view name, const std::string& value,
                           const std::vector<std::string>& known) const;

  std::string who_;
  std::map<std::string, std::string, std::less<>> given_;
  std::vector<std::string> read_;
};

}  // namespace motley::moe
