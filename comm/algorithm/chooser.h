// comm/algorithm/chooser.h: remembers choices: which family a call of a group takes.
#pragma once

#include <array>
#include <cstddef>
#include <map>
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

 private:
  static constexpr std::size_t kLayouts = 64;
  static constexpr std::size_t kChoices = 4096;  // of one layout

  // Of a member: its host, in order of their first members; what kind of host; its socket.
  using Place = std::array<int, 3>;
  struct Layout {
    Topology topology;
    std::map<std::tuple<CallKind, int, std::size_t>, int> chosen;  // by kind, root, size class
  };
  Layout& layout_of(const Group& group);

  Layout world_;           // found without a search
  std::vector<int> kind_;  // by host of the world; the same for hosts that are alike in all
  std::map<std::vector<Place>, Layout> layouts_;
};

}  // namespace motley
