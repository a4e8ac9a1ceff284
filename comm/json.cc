#include "comm/json.h"

namespace motley {

nlohmann::json parse_json(std::string_view text, bool throws) {
  return nlohmann::json::parse(text, nullptr, throws);
}

std::string json_text(const nlohmann::json& value, int indent,
                      nlohmann::json::error_handler_t no_utf8) {
  return value.dump(indent, ' ', false, no_utf8);
}

}  // namespace motley
