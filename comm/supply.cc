#include "comm/supply.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/control/range_set.h"
#include "comm/control/supply_desk.h"
#include "comm/error.h"

namespace motley {

struct Supply::Impl {
  Impl(Communicator& comm_, std::string name_, const SupplyOptions& options_)
      : comm(comm_), name(std::move(name_)), options(options_), left(options_.count) {
    if (name.size() > kMaxKeyBytes) {
      throw Error(ErrorCode::kInvalid, fmt::format("supply: a name of {} bytes; the limit is {}.",
                                                   name.size(), kMaxKeyBytes));
    }
    if (options.count < 0 || options.claim < 1) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("supply \"{}\": {} numbers, {} at a time. Use at least 0 and 1.",
                              name, options.count, options.claim));
    }
    if (options.timeout <= Duration::zero()) options.timeout = comm.options().timeout;
    if (comm.control() == nullptr) desk.emplace();
    if (!options.uncounted) {
      options.uncounted.emplace();
      if (options.count > 0) options.uncounted->push_back({0, options.count});
    }
    ask({.type = MessageType::kSupplyOpen,
         .number = options.count,
         .key = name,
         .value = encode_ranges({*options.uncounted})});
  }

  // The controller's answer or, without one, that of a desk of our own.
  Message ask(Message request) {
    if (!desk) return comm.control()->supply(std::move(request), deadline());
    std::vector<SupplyDesk::Answer> answers = desk->request(comm.rank(), request);
    Message answer = std::move(answers.at(0).message);  // nobody else has anything to wait for
    if (answer.type == MessageType::kError) {
      throw Error(static_cast<ErrorCode>(answer.number), answer.value);
    }
    return answer;
  }

  std::vector<Range> tell(MessageType type, std::int64_t wanted) {
    std::vector<Range> holds = held.ranges();
    holds.insert(holds.end(), given.ranges().begin(), given.ranges().end());
    const Message answer = ask({.type = type,
                                .number = wanted,
                                .key = name,
                                .value = encode_ranges({counted.ranges(), holds})});
    counted = {};
    left = answer.number;
    const auto lists = decode_ranges(answer.value, 2, options.count);
    if (!lists.empty()) return lists.front();
    throw Error(ErrorCode::kAborted,
                fmt::format("supply \"{}\": the controller's answer cannot be read. Run the same "
                            "version of Motley on all hosts.",
                            name));
  }

  TimePoint deadline() const { return comm.clock().now() + options.timeout; }

  Communicator& comm;
  std::string name;
  SupplyOptions options;
  std::optional<SupplyDesk> desk;  // where there is no controller
  std::int64_t left;               // that nobody had counted, when we last heard
  RangeSet held;                   // by this rank, not given to its caller yet
  RangeSet given;                  // to its caller, and not counted yet
  RangeSet counted;                // and not told yet
};

Supply::Supply(Communicator& comm, std::string name, const SupplyOptions& options)
    : impl_(std::make_unique<Impl>(comm, std::move(name), options)) {}

Supply::Supply(Supply&&) noexcept = default;

Supply::~Supply() {
  if (impl_ == nullptr) return;  // moved from
  try {
    give_back();
  } catch (const std::exception&) {
    // The controller is gone, or takes this rank for dead: it knows what to do with its numbers.
  }
}

Range Supply::next(std::int64_t most) {
  Impl& it = *impl_;
  if (most < 1 || it.given.count() > 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("supply \"{}\": next({}) while {} numbers of the last part are not "
                            "counted. Count them first, and ask for at least 1.",
                            it.name, most, it.given.count()));
  }
  if (it.held.count() == 0) {
    // Half of a fair share at most: in the end nobody holds much that others wait for.
    const std::int64_t share = it.left / (2 * it.comm.size());
    const std::int64_t wanted = std::max(most, std::min(share, it.options.claim));
    for (const Range& range : it.tell(MessageType::kSupplyTake, wanted)) it.held.add(range);
    if (it.held.count() == 0) return {};
  }
  const std::vector<Range>& first = it.held.ranges();
  const Range part{first.front().begin,
                   first.front().begin + std::min(most, first.front().count())};
  it.held.remove(part);
  it.given.add(part);
  return part;
}

void Supply::count(Range part) {
  Impl& it = *impl_;
  if (part.count() < 1 || !it.given.remove(part)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("supply \"{}\": count({}, {}), which rank {} was not given, or has "
                            "counted.",
                            it.name, part.begin, part.end, it.comm.rank()));
  }
  it.counted.add(part);
  if (it.held.count() == 0 && it.given.count() == 0) it.tell(MessageType::kSupplyTake, 0);
}

void Supply::give_back() {
  Impl& it = *impl_;
  const bool has_news = it.held.count() + it.given.count() + it.counted.count() > 0;
  it.held = {};
  it.given = {};
  if (has_news) it.tell(MessageType::kSupplyTake, 0);
}

std::vector<Range> Supply::uncounted() { return impl_->tell(MessageType::kSupplyLeft, 0); }

}  // namespace motley
