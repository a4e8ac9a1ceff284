#include "comm/bootstrap/controller_host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "comm/bootstrap/interface.h"
#include "comm/bootstrap/meeting_file.h"
#include "comm/bootstrap/rendezvous_url.h"
#include "comm/error.h"

namespace motley {
namespace {

// All addresses, unless the user chose among them: nobody can tell from here which of them the
// others reach.
ControllerOptions controller_options(const Options& options, const std::string& token) {
  const RendezvousUrl url = RendezvousUrl::parse(options.controller);
  const std::vector<Interface> all = interfaces();
  const bool v6 =
      std::any_of(all.begin(), all.end(), [](const Interface& it) { return it.address.is_v6(); });
  std::string host = v6 ? "tcp://[::]" : "tcp://0.0.0.0";
  if (!options.interface.empty()) {
    host = select_interfaces(all, options.interface).front().address.url(0);
    host.resize(host.size() - 2);
  }
  return {.bind = fmt::format("{}:{}", host, url.endpoint.port),
          .size = options.size,
          .token = token,
          .lease = options.lease,
          .ports = url.endpoint.port == 0 ? options.ports : ""};
}

// Where the others may find what listens at `port`; loopback only if there is nothing else.
std::vector<std::string> addresses(const Options& options, int port) {
  std::vector<std::string> urls;
  for (const Interface& it : select_interfaces(interfaces(), options.interface)) {
    if (it.address.is_loopback() && !urls.empty() && options.interface.empty()) continue;
    urls.push_back(it.address.url(port));
  }
  if (urls.empty()) {
    throw Error(ErrorCode::kUnavailable,
                "network: no interface of this host is up, not even lo. Bring one up.");
  }
  return urls;
}

}  // namespace

ControllerHost::ControllerHost(const Options& options, Clock& clock)
    : path_(RendezvousUrl::parse(options.controller).path),
      token_(options.token.empty() && !path_.empty() ? make_token() : options.token),
      server_(controller_options(options, token_), clock) {
  const std::string& bound = server_.address();
  const int port = std::stoi(bound.substr(bound.rfind(':') + 1));
  std::vector<std::string> urls = addresses(options, port);
  address_ = urls.front();
  if (!path_.empty()) write_meeting_file(path_, {.token = token_, .addresses = std::move(urls)});
}

ControllerHost::~ControllerHost() {
  server_.wait_until_left();
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace motley
