#include "comm/topology/settle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "comm/error.h"
#include "comm/executor/engine.h"
#include "comm/machine.h"
#include "comm/topology/probe.h"

namespace motley {
namespace {

bool is_one_host(const std::vector<int>& host_of) {
  return std::ranges::all_of(host_of, [](int host) { return host == 0; });
}

// Hosts and sockets; the costs are the transport's guess.
Topology known_topology(Communicator& comm, const std::vector<int>& host_of, bool sockets) {
  const Link link = comm.engine().transport().link();
  TopologyCosts costs{.between = link};
  if (is_one_host(host_of)) costs.within = costs.across = link;
  std::vector<Host> hosts = Topology::hosts(host_of, costs).hosts();
  if (is_one_host(host_of)) hosts[0].cores = comm.engine().transport().cores();
  if (sockets) {
    std::vector<std::int32_t> nodes(host_of.size());
    nodes[static_cast<std::size_t>(comm.rank())] = std::max(0, Machine::discover().numa_node);
    comm.all_reduce(nodes, ReduceOp::kSum).wait();
    for (Host& host : hosts) {
      for (const int rank : host.ranks)
        host.socket.push_back(nodes[static_cast<std::size_t>(rank)]);
    }
  }
  return Topology(std::move(hosts), costs);
}

// Rank 0's `text` on every rank. Nothing is known of its length elsewhere.
std::string share(Communicator& comm, std::string text) {
  std::vector<std::int64_t> size = {static_cast<std::int64_t>(text.size())};
  comm.broadcast(size, 0).wait();
  std::vector<std::int8_t> bytes(static_cast<std::size_t>(size[0]));
  std::copy(text.begin(), text.end(), bytes.begin());
  comm.broadcast(bytes, 0).wait();
  return {bytes.begin(), bytes.end()};
}

// The file as rank 0 reads it, or why it cannot.
Topology read_by_rank_0(Communicator& comm, const std::string& path) {
  std::string text;
  std::string fault;
  ErrorCode code = ErrorCode::kInvalid;
  if (comm.rank() == 0) {
    try {
      const Topology topology = Topology::read(path);
      if (topology.ranks() != comm.size()) {
        throw Error(ErrorCode::kInvalid,
                    fmt::format("{}: it describes {} ranks, but the job has {}. Describe as many, "
                                "or set MOTLEY_TOPOLOGY to auto.",
                                path, topology.ranks(), comm.size()));
      }
      text = topology.to_text();
    } catch (const Error& error) {
      fault = error.what();
      code = error.code();
    }
  }
  std::vector<std::int64_t> verdict = {static_cast<std::int64_t>(code), fault.empty() ? 0 : 1};
  comm.broadcast(verdict, 0).wait();
  text = share(comm, verdict[1] == 0 ? text : fault);
  if (verdict[1] != 0) throw Error(static_cast<ErrorCode>(verdict[0]), text);
  return Topology::parse(text, path);
}

enum class Source : std::int64_t { kKnown, kProbe, kFile };

Source source_of(const std::string& wanted, bool one_host) {
  if (wanted == "hosts") return Source::kKnown;
  if (wanted == "probe") return Source::kProbe;
  if (wanted == "auto") return one_host ? Source::kKnown : Source::kProbe;
  return Source::kFile;
}

}  // namespace

void settle_topology(Communicator& comm, const std::vector<int>& host_of) {
  const std::string& wanted = comm.options().topology;
  if (comm.size() == 1) return;
  std::vector<std::int64_t> source = {
      static_cast<std::int64_t>(source_of(wanted, is_one_host(host_of)))};
  comm.broadcast(source, 0).wait();
  switch (static_cast<Source>(source[0])) {
    case Source::kKnown:
      return comm.use_topology(known_topology(comm, host_of, false));
    case Source::kProbe:
      return comm.use_topology(probe(comm, known_topology(comm, host_of, true)));
    case Source::kFile:
      return comm.use_topology(read_by_rank_0(comm, wanted));
  }
}

}  // namespace motley
