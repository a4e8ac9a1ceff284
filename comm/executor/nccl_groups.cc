#include "comm/executor/nccl_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/error.h"

namespace motley {
namespace {

constexpr Duration kLook = std::chrono::microseconds(50);
constexpr Duration kPatience = seconds(2);  // for the others to find out that it did not work

// What `step` threw; null if nothing.
std::exception_ptr caught(const std::function<void()>& step) {
  try {
    step();
    return nullptr;
  } catch (const Error&) {
    return std::current_exception();
  }
}

bool on_host(ConstView view) { return view.count != 0 && view.memory == Memory::kHost; }

}  // namespace

bool NcclGroups::all_agree(const Group& group, bool mine, Duration timeout) {
  std::int32_t word = mine ? 1 : 0;
  host_call_(CallKind::kAllReduce, std::span(&word, 1), group, timeout);
  return word == 1;
}

void NcclGroups::connect_all(const Group& world, Engine& engine) {
  const auto make = [&] {
    nccl_ = make_nccl({.rank = engine.transport().rank(),
                       .size = world.size(),
                       .clock = engine.clock(),
                       .scratch_bytes = options_.nccl_scratch});
  };
  const std::exception_ptr mine = caught(make);
  const bool all = all_agree(world, mine == nullptr, options_.join_timeout);
  if (all) return connect(world, options_.join_timeout, engine);
  nccl_.reset();
  if (mine) std::rethrow_exception(mine);
  throw Error(ErrorCode::kUnavailable,
              "use_nccl: another rank has no device or no NCCL. Its own error says more.");
}

// Each step is one after which all members know whether it worked everywhere: none waits in NCCL
// for one that has failed.
void NcclGroups::connect(const Group& group, Duration timeout, Engine& engine) {
  const TimePoint deadline = engine.clock().now() + timeout;
  const auto left = [&] { return std::max(deadline - engine.clock().now(), kPatience); };
  NcclId id{};
  std::exception_ptr mine;
  if (group.rank_at(0) == engine.transport().rank()) mine = caught([&] { id = new_nccl_id(); });
  const auto agree = [&](const char* what) {
    if (all_agree(group, mine == nullptr, left())) return;
    engine.alone([&] { nccl_->stop_connecting(); });
    if (mine) std::rethrow_exception(mine);
    throw Error(ErrorCode::kUnavailable,
                fmt::format("NCCL: another of {} ranks could not {}. Its own error says more.",
                            group.size(), what));
  };
  agree("make an id");
  host_call_(CallKind::kBroadcast, View(id.data(), id.size(), DType::kInt8), group, left());
  mine = caught([&] { engine.alone([&] { nccl_->connect(group, id, deadline); }); });
  agree("begin to connect");
  mine = caught([&] {
    bool connected = false;
    while (!connected) {
      engine.alone([&] { connected = nccl_->connected(); });
      engine.poll();
      const TimePoint now = engine.clock().now();
      if (!connected && now >= deadline) {
        throw Error(ErrorCode::kTimeout,
                    fmt::format("NCCL: {} ranks were not connected within {:.1f} s. Check the "
                                "network between their devices.",
                                group.size(), to_seconds(timeout)));
      }
      if (!connected) engine.clock().sleep_until(now + kLook);
    }
  });
  agree("connect");
}

Team* NcclGroups::team_for(const Call& call, const Group& world, Engine& engine) {
  if (nccl_ == nullptr || !nccl_->runs(call.kind, 0, 0)) return nullptr;
  const Group& group = *call.group;
  const bool chosen = !group.tag().from_controller() && group.size() > 1;
  if (chosen && group.next_device_call() == kOften && &group != &world && !nccl_->has(group)) {
    const bool room = nccl_->communicators() < kMost;
    if (all_agree(group, room, call.timeout)) connect(group, call.timeout, engine);
  }
  if (!nccl_->has(group) && options_.nccl != "all") return nullptr;
  if (on_host(call.in) || on_host(call.out)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("{}: one buffer lies on the device and one on the host. Over NCCL both "
                            "lie on the device, on all members.",
                            name(call.kind)));
  }
  return nccl_.get();
}

}  // namespace motley
