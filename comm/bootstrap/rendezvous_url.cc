#include "comm/bootstrap/rendezvous_url.h"

#include <fmt/format.h>

#include "comm/error.h"

namespace motley {

RendezvousUrl RendezvousUrl::parse(const std::string& text) {
  constexpr const char* kWhat = "options: MOTLEY_CONTROLLER";
  const std::size_t end = text.find(':');
  const std::string scheme = text.substr(0, end);
  const std::string rest = end == text.npos ? "" : text.substr(end + 1);
  const bool slashes = rest.starts_with("//");
  if (slashes && scheme == "tcp") return {kStarted, Endpoint::parse(rest.substr(2), kWhat), {}};
  if (slashes && scheme == "rank0") {
    return {kInRankZero, Endpoint::parse(rest.substr(2), kWhat), {}};
  }
  const std::string path = slashes ? rest.substr(2) : rest;
  if (scheme == "file" && path.starts_with('/')) return {kFile, {}, path};
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("{} is \"{}\". Use tcp://host:port (a controller that was started there), "
                  "rank0://host:port (rank 0 runs it) or file:/path.",
                  kWhat, text));
}

std::vector<std::string> addresses_in(const std::string& list) {
  std::vector<std::string> addresses;
  std::size_t begin = 0;
  for (std::size_t end = list.find(','); end != list.npos; end = list.find(',', begin)) {
    addresses.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  addresses.push_back(list.substr(begin));
  return addresses;
}

}  // namespace motley
