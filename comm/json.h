// comm/json.h: JSON from text and back, compiled once: each source that does it by itself
// takes seconds to compile.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace motley {

// Throws nlohmann::json::exception or, unless it `throws`, returns what is_discarded().
nlohmann::json parse_json(std::string_view text, bool throws = true);

// On one line, or with `indent` columns a level. Throws nlohmann::json::exception of what is no
// UTF-8, unless the handler replaces that.
std::string json_text(
    const nlohmann::json& value, int indent = -1,
    nlohmann::json::error_handler_t no_utf8 = nlohmann::json::error_handler_t::strict);

}  // namespace motley
