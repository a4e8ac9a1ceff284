#include "comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/algorithm/chooser.h"
#include "comm/algorithm/families.h"
#include "comm/control/client.h"
#include "comm/control/locator.h"
#include "comm/executor/arguments.h"
#include "comm/executor/engine.h"
#include "comm/executor/known_calls.h"
#include "comm/executor/nccl_groups.h"
#include "comm/topology.h"
#include "comm/transport/team.h"
#include "comm/transport/transport.h"

namespace motley {
namespace {

constexpr const char* kOrdered = "ordered";  // the families that reduce in the order of ranks

[[noreturn]] void refuse_device(CallKind kind, const std::string& wanted) {
  throw Error(ErrorCode::kInvalid,
              fmt::format("{}: the algorithm {} passes on blocks of host memory only, but a buffer "
                          "is in device memory. Use auto or direct.",
                          name(kind), wanted));
}

// Families that pass on heads of blocks do so in host memory.
bool runs_on(const Call& call, int family) {
  return !call.on_device() ||
         algorithms_of(call.kind)[static_cast<std::size_t>(family)].rest == nullptr;
}

std::vector<std::size_t> copy_of(std::span<const std::size_t> counts) {
  return {counts.begin(), counts.end()};
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
        automatic(options_.algorithm == "auto"),
        world(Group::world(transport->size())),
        nccl(options,
             [this](CallKind kind, View data, const Group& group, Duration timeout) {
               start({.kind = kind, .in = data, .out = data, .op = ReduceOp::kMin},
                     {.group = &group, .timeout = timeout})
                   .wait();
             }),
        engine(std::move(transport), clock_),
        chooser(Topology::uniform(world.size(), engine.transport().link())),
        control(std::move(control_)) {
    if (control != nullptr) listen_to_control();
    // Simulated time passes only while all ranks wait, so there nobody else can make progress.
    if (options.progress_thread && &clock == &Clock::real()) engine.start_progress_thread();
  }
  ~Impl() { engine.stop_progress_thread(); }  // which may ask the controller

  void listen_to_control() {
    locator.emplace(*control, options);
    engine.explain_by(&*locator);
    control->tell_of(&engine.recorder());
    control->on_lost([this](int rank, const std::string& why) { engine.report_lost(rank, why); });
    control->on_dropped(
        [this](const GroupTag& tag, int rank) { engine.report_dropped(tag, rank); });
  }

  const Group& group_of(const CallOptions& call) const {
    return call.group != nullptr ? *call.group : world;
  }

  // Checks what this rank can check alone, numbers the call and starts it.
  Request start(Call&& call, const CallOptions& call_options) {
    const Group& group = group_of(call_options);
    check_group(call.kind, group, engine.transport().rank(), engine.transport().size());
    return start(std::move(call), call_options, group);
  }

  // The same with a `root`, a rank of the communicator.
  Request start_rooted(Call&& call, int root, const CallOptions& call_options) {
    const Group& group = group_of(call_options);
    call.root = group.index_of(root);
    if (call.root < 0) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("{}: root {} is not among the {} ranks of the group.",
                              name(call.kind), root, group.size()));
    }
    // What is not looked at on this rank, apart from the kind of its memory.
    const bool is_root = root == engine.transport().rank();
    const DType dtype = call.kind == CallKind::kScatter ? call.out.dtype : call.in.dtype;
    if (!is_root && call.kind == CallKind::kScatter)
      call.in = ConstView(nullptr, 0, dtype, call.in.memory);
    if (!is_root && call.kind != CallKind::kScatter && call.kind != CallKind::kBroadcast)
      call.out = View(nullptr, 0, dtype, call.out.memory);
    return start(std::move(call), call_options);
  }

  // A message from one rank to another, of which this rank is one.
  Request start_message(Call&& call, int from, int to, const CallOptions& call_options) {
    const int size = engine.transport().size();
    const bool sends = from == engine.transport().rank();
    const int other = sends ? to : from;
    std::string flaw;
    if (from == to) flaw = fmt::format("rank {} is this rank itself. Name another.", other);
    if (other < 0 || other >= size)
      flaw = fmt::format("there is no rank {} among {}. Use 0 to {}.", other, size, size - 1);
    if (call_options.group != nullptr)
      flaw = "a message has no group but its two ranks. Leave CallOptions::group null.";
    if (!flaw.empty())
      throw Error(ErrorCode::kInvalid, fmt::format("{}: {}", sends ? "send" : "recv", flaw));
    return start(std::move(call), call_options, pair_of(from, to));
  }

  // A call of all ranks without a root. One that is like another before goes the short way.
  Request start_on_all(CallKind kind, const ConstView& in, const View& out, ReduceOp op,
                       const CallOptions& call_options) {
    auto* const known = is_plain(call_options) ? known_calls.find(kind, in, out, op) : nullptr;
    const auto as_asked = [&] { return Call{.kind = kind, .in = in, .out = out, .op = op}; };
    if (known == nullptr) return start(as_asked(), call_options);
    known->part.id.number = world.next_call();
    const auto whole = [&] {
      Call call = as_asked();
      complete(call, call_options, world);
      call.number = known->part.id.number;
      call.algorithm = known->part.fingerprint.algorithm;
      call.team = known->team;
      return call;
    };
    return engine.start(*known->team, known->part, std::ref(whole));  // a reference needs no heap
  }

  static bool is_plain(const CallOptions& call_options) noexcept {
    return call_options.group == nullptr && call_options.algorithm.empty() &&
           !call_options.deterministic && call_options.weight == 1;
  }

  // All that a call needs, apart from its number and who runs it.
  void complete(Call& call, const CallOptions& call_options, const Group& group) const {
    call.group = &group;
    call.timeout = call_options.timeout > Duration::zero() ? call_options.timeout : options.timeout;
    call.stream = call_options.stream;
    call.segment_bytes = options.segment_bytes;
    call.staging_slots = options.staging_slots;
    call.staging_bytes = options.staging_bytes;
  }

  Request start(Call&& call, const CallOptions& call_options, const Group& group) {
    const int rank = engine.transport().rank();
    group.use_by(rank);
    call.weight = call_options.weight;
    check_arguments(call, group.index_of(rank), group.size());
    complete(call, call_options, group);
    if (!goes_over_nccl(call, call_options)) call.algorithm = algorithm_of(call, call_options);
    if (call.team == nullptr) call.team = engine.transport().team();
    call.number = group.next_call();
    if (TeamExecution::runs(call.algorithm)) {
      if (is_plain(call_options) && !call.on_device() && !has_root(call.kind) && !varies(call.kind))
        known_calls.note(call, TeamExecution::part_of(call).fingerprint);
      return engine.start(std::move(call));
    }
    call.deterministic = call.algorithm == find_algorithm(call.kind, kOrdered);
    const std::lock_guard lock(choosing);
    call.topology = &chooser.among(group);
    return engine.start(std::move(call));
  }

  const Group& pair_of(int from, int to) {
    const std::lock_guard lock(choosing);
    const auto found = pairs.find({from, to});
    if (found != pairs.end()) return found->second;
    return pairs.emplace(std::pair(from, to), Group({from, to}, GroupTag::pair(from, to)))
        .first->second;
  }

  // Calls on device memory that ask for no schedule go over NCCL, where that runs them. It may have
  // to connect their group first.
  bool goes_over_nccl(Call& call, const CallOptions& call_options) {
    const std::string& asked = call_options.algorithm;
    const bool any = asked.empty() ? automatic : asked == "auto";
    if (!any || !call.on_device()) return false;
    call.team = nccl.team_for(call, world, engine);
    if (call.team == nullptr) return false;
    const bool deterministic = call_options.deterministic && reduces(call.kind);
    call.algorithm = deterministic ? TeamExecution::kDeterministic : TeamExecution::kAlgorithm;
    return true;
  }

  // The family that the call asks for; else the configured one, if this collective has it; else the
  // cheapest on the topology, of the transport's team, where it runs such calls, and the families.
  // A pure function of what all members know.
  int algorithm_of(const Call& call, const CallOptions& call_options) {
    const std::string& asked = call_options.algorithm;
    if (call_options.deterministic && reduces(call.kind)) {
      if (asked.empty() || asked == "auto" || asked == kOrdered)
        return find_algorithm(call.kind, kOrdered);
      throw Error(ErrorCode::kInvalid,
                  fmt::format("{}: algorithm '{}' is not deterministic. Use {}, or leave it out.",
                              name(call.kind), asked, kOrdered));
    }
    const bool any = asked.empty() ? automatic : asked == "auto";
    if (!any) {
      const std::string& wanted = asked.empty() ? options.algorithm : asked;
      const int found = find_algorithm(call.kind, wanted);
      if (found >= 0 && runs_on(call, found)) return found;
      if (found >= 0 && !asked.empty()) refuse_device(call.kind, wanted);
      if (!asked.empty()) refuse_algorithm(call.kind, wanted);
    }
    const int members = call.group->size();
    const std::size_t bytes = call.agreed_count() * size_bytes(call.out.dtype);
    const Choice choice{.kind = call.kind,
                        .bytes = bytes,
                        .root = call.root,
                        .segment_bytes = options.segment_bytes,
                        .memory = call.on_device() ? Memory::kDevice : Memory::kHost};
    const Team* const team = any ? team_of(call) : nullptr;
    const auto price = [team](const Choice& what, const Topology& among) {
      return team->price(what.kind, what.bytes, among);
    };
    if (team != nullptr && team->runs(call.kind, bytes, members) &&
        chooser.takes_whole(choice, members, price)) {
      return TeamExecution::kAlgorithm;
    }
    const std::lock_guard lock(choosing);
    return chooser.choose(choice, *call.group);
  }

  // Who runs such a call as a whole; null: a schedule runs it, which brings device memory through
  // slots of the host. The transport's team loads from the memory of other ranks, which only the
  // host's can be.
  Team* team_of(const Call& call) {
    return call.on_device() ? nullptr : engine.transport().team_of(*call.group);
  }

  Clock& clock;
  Options options;
  bool automatic;  // options.algorithm is "auto"
  Group world;
  NcclGroups nccl;  // whose calls the engine ends
  Engine engine;
  std::mutex choosing;  // of chooser and pairs: threads may use different groups at once
  Chooser chooser;
  KnownCalls known_calls;
  std::map<std::pair<int, int>, Group> pairs;  // by sender and receiver, one of them this rank
  std::optional<Locator> locator;              // not used after the last call
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
  impl_->engine.use_links(topology);
  impl_->known_calls.forget();
  impl_->chooser = Chooser(std::move(topology));
}

void Communicator::use_nccl() { impl_->nccl.connect_all(impl_->world, impl_->engine); }

const Recorder& Communicator::recorder() const noexcept { return impl_->engine.recorder(); }
std::uint64_t Communicator::refused() const noexcept { return impl_->engine.transport().refused(); }

std::string Communicator::status(Duration patience) const {
  const std::string who = fmt::format("rank {} of {}", rank(), size());
  std::optional<Report> report;
  try {
    if (control() != nullptr) report = control()->report({}, 0, clock().now() + patience);
  } catch (const Error&) {
    // Said in the text: a status is wanted most when something is wrong.
  }
  return status_text(who, recorder(), report ? &*report : nullptr, clock().now()) +
         (impl_->locator ? impl_->locator->dump("status", who + " was asked for its status") : "");
}

Request Communicator::all_reduce(View data, ReduceOp op, const CallOptions& options) {
  return impl_->start_on_all(CallKind::kAllReduce, data, data, op, options);
}

Request Communicator::all_reduce(ConstView in, View out, ReduceOp op, const CallOptions& options) {
  return impl_->start_on_all(CallKind::kAllReduce, in, out, op, options);
}

Request Communicator::reduce(ConstView in, View out, ReduceOp op, int root,
                             const CallOptions& options) {
  return impl_->start_rooted({.kind = CallKind::kReduce, .in = in, .out = out, .op = op}, root,
                             options);
}

Request Communicator::reduce_scatter(ConstView in, View out, ReduceOp op,
                                     const CallOptions& options) {
  return impl_->start_on_all(CallKind::kReduceScatter, in, out, op, options);
}

Request Communicator::all_gather(ConstView in, View out, const CallOptions& options) {
  return impl_->start_on_all(CallKind::kAllGather, in, out, ReduceOp::kSum, options);
}

Request Communicator::all_gather_v(ConstView in, const Blocks& out, const CallOptions& options) {
  return impl_->start(
      {.kind = CallKind::kAllGatherV, .in = in, .out = out.data, .out_counts = copy_of(out.counts)},
      options);
}

Request Communicator::gather(ConstView in, View out, int root, const CallOptions& options) {
  return impl_->start_rooted({.kind = CallKind::kGather, .in = in, .out = out}, root, options);
}

Request Communicator::scatter(ConstView in, View out, int root, const CallOptions& options) {
  return impl_->start_rooted({.kind = CallKind::kScatter, .in = in, .out = out}, root, options);
}

Request Communicator::broadcast(View data, int root, const CallOptions& options) {
  return impl_->start_rooted({.kind = CallKind::kBroadcast, .in = data, .out = data}, root,
                             options);
}

Request Communicator::all_to_all(ConstView in, View out, const CallOptions& options) {
  return impl_->start_on_all(CallKind::kAllToAll, in, out, ReduceOp::kSum, options);
}

Request Communicator::all_to_all_v(const ConstBlocks& in, const Blocks& out,
                                   const CallOptions& options) {
  return impl_->start({.kind = CallKind::kAllToAllV,
                       .in = in.data,
                       .out = out.data,
                       .in_counts = copy_of(in.counts),
                       .out_counts = copy_of(out.counts)},
                      options);
}

Request Communicator::barrier(const CallOptions& options) {
  return impl_->start_on_all(CallKind::kBarrier, {}, {}, ReduceOp::kSum, options);
}

Request Communicator::send(ConstView data, int to, const CallOptions& options) {
  Call call{.kind = CallKind::kSendRecv, .in = data, .out = View(nullptr, 0, data.dtype)};
  return impl_->start_message(std::move(call), impl_->engine.transport().rank(), to, options);
}

Request Communicator::recv(View data, int from, const CallOptions& options) {
  Call call{.kind = CallKind::kSendRecv, .in = ConstView(nullptr, 0, data.dtype), .out = data};
  return impl_->start_message(std::move(call), from, impl_->engine.transport().rank(), options);
}

SharedBuffer Communicator::allocate(std::size_t bytes) {
  Team* const team = impl_->engine.transport().team();
  return team != nullptr ? team->allocate(bytes) : SharedBuffer::of_own_memory(bytes);
}

void Communicator::report_lost(int rank, const std::string& why) noexcept {
  impl_->engine.report_lost(rank, why);
}

}  // namespace motley
