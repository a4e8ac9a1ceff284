#include "comm/bootstrap/connect.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "comm/bootstrap/controller_host.h"
#include "comm/bootstrap/interface.h"
#include "comm/bootstrap/meeting_file.h"
#include "comm/bootstrap/rendezvous_url.h"
#include "comm/error.h"

namespace motley {
namespace {

constexpr Duration kLook = seconds(0.02);  // between looks at what is not there yet
constexpr Duration kTry = seconds(3);      // for a connection to be made

[[noreturn]] void throw_not_found(const Options& options, const std::string& where) {
  throw Error(
      ErrorCode::kTimeout,
      fmt::format("rank {} of {}: no controller at {} ({}) within {:g} s. Check that rank 0 "
                  "or motley-controller runs and that this host reaches it, or raise "
                  "join_timeout.",
                  options.rank, options.size, options.controller, where,
                  to_seconds(options.join_timeout)),
      std::vector<int>{0});
}

std::unique_ptr<ControlClient> connect(Options options, const std::string& address, Clock& clock,
                                       TimePoint deadline) {
  options.tell(LogLevel::kInfo, fmt::format("rank {} of {}: the controller is at {}", options.rank,
                                            options.size, address));
  const std::string first = addresses_in(options.controller).front();
  const bool started = RendezvousUrl::parse(first).scheme == RendezvousUrl::kStarted;
  options.controller = address;
  options.join_timeout = std::max(Duration(0), deadline - clock.now());
  return connect_control(options, clock, started ? -1 : 0);
}

std::unique_ptr<ControlClient> connect_as_host(const Options& options, Clock& clock,
                                               TimePoint deadline) {
  auto host = std::make_unique<ControllerHost>(options, clock);
  Options mine = options;
  mine.token = host->token();
  auto client = connect(mine, host->address(), clock, deadline);
  client->keep(std::move(host));
  return client;
}

// A name may stand for several addresses, of which this host may reach but one.
std::unique_ptr<ControlClient> connect_by_name(const Options& options, const Endpoint& endpoint,
                                               Clock& clock, TimePoint deadline) {
  std::string looked = fmt::format("{} has no address", endpoint.host);
  while (true) {
    const std::vector<IpAddress> found = resolve(endpoint.host);
    if (found.size() == 1) return connect(options, found[0].url(endpoint.port), clock, deadline);
    std::vector<std::pair<IpAddress, int>> candidates;
    for (const IpAddress& it : found) candidates.emplace_back(it, endpoint.port);
    const TimePoint now = clock.now();
    if (now >= deadline) throw_not_found(options, looked);
    if (!found.empty()) looked = fmt::format("none of its {} addresses answers", found.size());
    const auto answered = first_to_answer(candidates, std::min(deadline, now + kTry));
    if (answered) {
      return connect(options, found[*answered].url(endpoint.port), clock, deadline);
    }
    clock.sleep_until(std::min(deadline, clock.now() + kLook));
  }
}

// Each of several controllers by one address: that which answers, for one that stands by does, too.
// What nobody knows an address of yet is looked up again when it is needed.
std::unique_ptr<ControlClient> connect_to_any(const Options& options,
                                              const std::vector<std::string>& urls, Clock& clock,
                                              TimePoint deadline) {
  std::vector<std::string> addresses;
  for (const std::string& text : urls) {
    const RendezvousUrl url = RendezvousUrl::parse(text);
    if (url.scheme != RendezvousUrl::kStarted) {
      throw Error(
          ErrorCode::kInvalid,
          fmt::format("options: MOTLEY_CONTROLLER names {} controllers, one of them \"{}\". "
                      "Each of several must be one that was started: tcp://host:port.",
                      urls.size(), text));
    }
    std::vector<std::pair<IpAddress, int>> candidates;
    for (const IpAddress& it : resolve(url.endpoint.host))
      candidates.emplace_back(it, url.endpoint.port);
    std::optional<std::size_t> answered;
    if (candidates.size() > 1)
      answered = first_to_answer(candidates, std::min(deadline, clock.now() + kTry));
    if (candidates.empty())
      addresses.push_back(text);
    else
      addresses.push_back(candidates[answered.value_or(0)].first.url(url.endpoint.port));
  }
  return connect(options, fmt::format("{}", fmt::join(addresses, ",")), clock, deadline);
}

// A file left behind by an earlier job leads nowhere until rank 0 has replaced it.
std::unique_ptr<ControlClient> connect_by_file(const Options& options, const std::string& path,
                                               Clock& clock, TimePoint deadline) {
  std::string looked = "there is no such file";
  while (true) {
    const auto place = read_meeting_file(path);
    const TimePoint now = clock.now();
    if (now >= deadline) throw_not_found(options, looked);
    if (!place) {
      clock.sleep_until(std::min(deadline, now + kLook));
      continue;
    }
    looked = fmt::format("it names {}", fmt::join(place->addresses, ", "));
    std::vector<std::pair<IpAddress, int>> candidates;
    for (const std::string& url : place->addresses) {
      const Endpoint endpoint = RendezvousUrl::parse(url).endpoint;
      for (const IpAddress& it : resolve(endpoint.host)) candidates.emplace_back(it, endpoint.port);
    }
    const auto answered = first_to_answer(candidates, std::min(deadline, now + kTry));
    if (!answered) {
      clock.sleep_until(std::min(deadline, clock.now() + kLook));
      continue;
    }
    Options mine = options;
    if (mine.token.empty()) mine.token = place->token;
    const auto& [address, port] = candidates[*answered];
    return connect(mine, address.url(port), clock, deadline);
  }
}

}  // namespace

std::unique_ptr<ControlClient> connect_to_job(const Options& options, Clock& clock,
                                              TimePoint deadline) {
  const std::vector<std::string> several = addresses_in(options.controller);
  if (several.size() > 1) return connect_to_any(options, several, clock, deadline);
  const RendezvousUrl url = RendezvousUrl::parse(options.controller);
  if (url.scheme != RendezvousUrl::kStarted && options.rank == 0) {
    return connect_as_host(options, clock, deadline);
  }
  if (url.scheme == RendezvousUrl::kFile) {
    return connect_by_file(options, url.path, clock, deadline);
  }
  return connect_by_name(options, url.endpoint, clock, deadline);
}

}  // namespace motley
