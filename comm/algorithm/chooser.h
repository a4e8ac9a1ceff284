// comm/algorithm/chooser.h: remembers choices: which family a call of a group takes.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "comm/algorithm/choose.h"
#include "comm/call_kind.h"
#include "comm/group.h"
#include "comm/topology.h"

namespace motley {

// Groups whose members lie alike on like hosts have one topology and one choice for each kind, root
// and size class: all sizes up to a power of two. What is remembered is bounded, however many
// groups there are; forgetting changes no answer.
class Chooser {
 public:
  explicit Chooser(Topology topology);

  const Topology& world() const noexcept { return world_.topology; }
  // The topology of the group of these ranks, whose hosts may bear the names of others that are
  // alike. Valid until the next call of this object.
  const Topology& among(const Group& group);
  // See choose.h; `call.root` is an index in the group.
  int choose(const Choice& call, const Group& group);

  // What a call, of so many bytes, costs as a whole among ranks of one host.
  using PriceOfWhole = std::function<Duration(const Choice& call, const Topology& among)>;
  // Whether choose() is for the whole, among `members` ranks of a host, up to kMostMembers. The
  // same for any of them: asked of the first on the host that has most ranks; true where the
  // topology knows no host with so many. Any thread; once known for a size class, a look at a
  // table.
  bool takes_whole(const Choice& call, int members, const PriceOfWhole& price) const {
    std::atomic<Decision>& known = decided_->at(place_of(call, members));
    const Decision decision = known.load(std::memory_order_relaxed);
    if (decision != Decision::kOpen) return decision == Decision::kAsWhole;
    const bool whole = decide(call, members, price);
    known.store(whole ? Decision::kAsWhole : Decision::kInParts, std::memory_order_relaxed);
    return whole;
  }
  static constexpr int kMostMembers = 64;

 private:
  static constexpr std::size_t kLayouts = 64;
  static constexpr std::size_t kChoices = 4096;  // of one layout

  enum class Decision : std::uint8_t { kOpen, kAsWhole, kInParts };
  static constexpr std::size_t kClasses = 65;  // of sizes: all up to a power of two
  using Decisions = std::array<std::atomic<Decision>, kCallKinds*(kMostMembers + 1) * kClasses>;
  static std::size_t place_of(const Choice& call, int members) noexcept {
    const auto kind = static_cast<std::size_t>(call.kind);
    const std::size_t size = call.bytes < 2 ? call.bytes : std::bit_width(call.bytes - 1) + 1U;
    return (kind * (kMostMembers + 1) + static_cast<std::size_t>(members)) * kClasses + size;
  }
  bool decide(const Choice& call, int members, const PriceOfWhole& price) const;

  // Of a member: its host, in order of their first members; what kind of host; its socket.
  using Place = std::array<int, 3>;
  struct Layout {
    Topology topology;
    // By kind, memory, root and size class.
    std::map<std::tuple<CallKind, Memory, int, std::size_t>, int> chosen;
  };
  Layout& layout_of(const Group& group);

  Layout world_;           // found without a search
  std::vector<int> kind_;  // by host of the world; the same for hosts that are alike in all
  std::map<std::vector<Place>, Layout> layouts_;
  std::unique_ptr<Decisions> decided_;
};

}  // namespace motley
