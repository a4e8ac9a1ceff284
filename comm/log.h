// comm/log.h: where the library says what it does. It prints nothing by itself.
//
//   options.log = [](LogLevel level, const std::string& text) { LOG(INFO) << text; };
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace motley {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };

// Takes one event, one line without an end. May be called by any thread of the library, at the same
// time as by others; must not call the library.
using LogSink = std::function<void(LogLevel level, const std::string& text)>;

}  // namespace motley
