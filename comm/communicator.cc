#include "comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include "comm/algorithm/chooser.h"
#include "comm/algorithm/families.h"
#include "comm/control/client.h"
#include "comm/executor/engine.h"
#include "comm/topology.h"
#include "comm/transport/team.h"
#include "comm/transport/transport.h"

namespace motley {
namespace {

// Index of the family called `wanted`, or -1.
int find_algorithm(CallKind kind, const std::string& wanted) {
  const std::vector<Algorithm>& algorithms = algorithms_of(kind);
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    if (wanted == algorithms[i].name) return static_cast<int>(i);
  }
  return -1;
}

[[noreturn]] void refuse_algorithm(CallKind kind, const std::string& wanted) {
  std::string names;
  for (const Algorithm& algorithm : algorithms_of(kind))
    names += fmt::format(" {}", algorithm.name);
  throw Error(ErrorCode::kInvalid,
              fmt::format("{}: there is no algorithm '{}'. Use auto or one of:{}.", name(kind),
                          wanted, names));
}

}  // namespace

struct Communicator::Impl {
  Impl(std::unique_ptr<Transport> transport, std::unique_ptr<ControlClient> control_, Clock& clock_,
       const Options& options_)
      : clock(clock_),
        options(options_),
        world(Group::world(transport->size())),
        engine(std::move(transport), clock_),
        chooser(Topology::uniform(world.size(), engine.transport().link())),
        control(std::move(control_)) {
    if (control == nullptr) return;
    control->on_lost([this](int rank, const std::string& why) { engine.report_lost(rank, why); });
  }

  const Group& group_of(const CallOptions& call) const {
    return call.group != nullptr ? *call.group : world;
  }

  // Checks the arguments that this rank can check alone, numbers the call and starts it.
  Request start(Call call, const CallOptions& call_options) {
    const Group& group = group_of(call_options);
    const int rank = engine.transport().rank();
    if (!group.contains(rank)) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("{}: rank {} is not in the group of {} ranks that it was called on.",
                              name(call.kind), rank, group.size()));
    }
    const int size = engine.transport().size();
    for (const int member : group.ranks()) {
      if (member < size) continue;
      throw Error(ErrorCode::kInvalid,
                  fmt::format("{}: the group names rank {}, but there are {} ranks.",
                              name(call.kind), member, size));
    }
    if (call.out.memory != Memory::kHost || call.in.memory != Memory::kHost) {
      throw Error(
          ErrorCode::kUnavailable,
          fmt::format("{}: device memory is not supported in this version. Copy to host memory.",
                      name(call.kind)));
    }
    call.timeout = call_options.timeout > Duration::zero() ? call_options.timeout : options.timeout;
    call.group = &group;
    call.algorithm = algorithm_of(call, call_options.algorithm);
    call.number = group.next_call();
    call.segment_bytes = options.segment_bytes;
    if (call.algorithm != TeamExecution::kAlgorithm) call.topology = &chooser.among(group);
    return engine.start(std::move(call));
  }

  // The family that the call asks for; else the configured one, if this collective has it; else the
  // transport's team, if it runs such calls: no schedule is faster than ranks that load from each
  // other's memory; else the cheapest on the topology. A pure function of what all members
  // know.
  int algorithm_of(const Call& call, const std::string& asked) {
    const std::string& wanted = asked.empty() ? options.algorithm : asked;
    const bool any = wanted == "auto";
    if (!any) {
      const int found = find_algorithm(call.kind, wanted);
      if (found >= 0) return found;
      if (!asked.empty()) refuse_algorithm(call.kind, wanted);
    }
    const int members = call.group->size();
    const std::size_t bytes = std::max(call.in.size_bytes(), call.out.size_bytes());
    const Team* const team = engine.transport().team();
    if (any && team != nullptr && team->price(call.kind, bytes, members)) {
      return TeamExecution::kAlgorithm;
    }
    return chooser.choose({.kind = call.kind, .bytes = bytes, .root = call.root}, *call.group);
  }

  Clock& clock;
  Options options;
  Group world;
  Engine engine;
  Chooser chooser;
  std::unique_ptr<ControlClient> control;  // ends before the engine, to which it reports the lost
};

Communicator::Communicator(std::unique_ptr<Transport> transport, Clock& clock,
                           const Options& options)
    : Communicator(std::move(transport), nullptr, clock, options) {}

Communicator::Communicator(std::unique_ptr<Transport> transport,
                           std::unique_ptr<ControlClient> control, Clock& clock,
                           const Options& options)
    : impl_(std::make_unique<Impl>(std::move(transport), std::move(control), clock, options)) {}

Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const noexcept { return impl_->engine.transport().rank(); }
int Communicator::size() const noexcept { return impl_->world.size(); }
const Options& Communicator::options() const noexcept { return impl_->options; }
Clock& Communicator::clock() const noexcept { return impl_->clock; }
const Group& Communicator::world() const noexcept { return impl_->world; }
ControlClient* Communicator::control() const noexcept { return impl_->control.get(); }
Engine& Communicator::engine() const noexcept { return impl_->engine; }
const Topology& Communicator::topology() const noexcept { return impl_->chooser.world(); }

void Communicator::use_topology(Topology topology) {
  if (topology.ranks() != size()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("use_topology: it has {} ranks, but there are {}. Describe them all.",
                            topology.ranks(), size()));
  }
  impl_->chooser = Chooser(std::move(topology));
}

Request Communicator::all_reduce(View data, ReduceOp op, const CallOptions& options) {
  return all_reduce(ConstView(data), data, op, options);
}

Request Communicator::all_reduce(ConstView in, View out, ReduceOp op, const CallOptions& options) {
  if (in.count != out.count || in.dtype != out.dtype) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("all_reduce: `in` has {} {} but `out` has {} {}. They must be alike.",
                            in.count, name(in.dtype), out.count, name(out.dtype)));
  }
  return impl_->start({.kind = CallKind::kAllReduce, .in = in, .out = out, .op = op}, options);
}

Request Communicator::all_to_all(ConstView in, View out, const CallOptions& options) {
  const Group& group = impl_->group_of(options);
  if (in.count != out.count || in.dtype != out.dtype ||
      in.count % static_cast<std::size_t>(group.size()) != 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("all_to_all: `in` has {} {} and `out` {} {}. They must be alike, and a "
                            "multiple of the {} members.",
                            in.count, name(in.dtype), out.count, name(out.dtype), group.size()));
  }
  return impl_->start({.kind = CallKind::kAllToAll, .in = in, .out = out}, options);
}

Request Communicator::broadcast(View data, int root, const CallOptions& options) {
  const int index = impl_->group_of(options).index_of(root);
  if (index < 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("broadcast: root {} is not among the {} ranks of the group.", root,
                            impl_->group_of(options).size()));
  }
  return impl_->start({.kind = CallKind::kBroadcast, .in = data, .out = data, .root = index},
                      options);
}

Request Communicator::barrier(const CallOptions& options) {
  return impl_->start({.kind = CallKind::kBarrier}, options);
}

SharedBuffer Communicator::allocate(std::size_t bytes) {
  Team* const team = impl_->engine.transport().team();
  return team != nullptr ? team->allocate(bytes) : SharedBuffer::of_own_memory(bytes);
}

void Communicator::report_lost(int rank, const std::string& why) noexcept {
  impl_->engine.report_lost(rank, why);
}

}  // namespace motley
