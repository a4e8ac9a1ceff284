// comm/control/recollection.h: what a rank remembers of what the controller knew, for the one that
// is started in its place: keys that this rank has set, sums that it was told of counters, and of
// each supply what was not counted yet when it last asked, and what it may hold.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/message.h"
#include "comm/control/range_set.h"

namespace motley {

struct Recollection {
  struct Supply {
    std::int64_t count = 0;
    bool whole = true;  // false: it was in too many pieces to be told
    std::vector<Range> uncounted;
    std::vector<Range> holds;
    friend bool operator==(const Supply&, const Supply&) = default;
  };

  std::map<std::string, std::string> values;     // by key
  std::map<std::string, std::int64_t> counters;  // by key
  std::map<std::string, Supply> supplies;        // by name
  friend bool operator==(const Recollection&, const Recollection&) = default;

  // `answer` to `request`, both this rank's.
  void learn(const Message& request, const Message& answer);
};

// What fits into a message, supplies first, then counters; long values are left out first.
std::string encode(const Recollection& recollection);
// Nothing unless the bytes are exactly one recollection.
std::optional<Recollection> decode_recollection(const std::string& bytes);

}  // namespace motley
