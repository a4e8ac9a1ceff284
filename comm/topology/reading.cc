#include "comm/topology/reading.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "comm/algorithm/families.h"
#include "comm/executor/engine.h"
#include "comm/kernel/reduce.h"
#include "comm/topology/arrivals.h"

namespace motley {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kProbeGroups = std::uint64_t{1} << 62;
constexpr std::uint64_t kTree = std::uint64_t{1} << 61;
constexpr std::uint64_t kCalls = std::uint64_t{1} << 60;
constexpr Duration kTokenTime = milliseconds(3);    // for which a token goes round
constexpr std::size_t kTokenRounds = 3;             // but so often at least
constexpr int kTrees = 64;                          // all-reduces, one after another
constexpr Duration kStreamTime = milliseconds(25);  // what a stream between hosts shall take
constexpr std::size_t kLeastPart = 4 << 10;         // bytes of its messages
constexpr int kParts = 32;                          // messages of a stream; twice that at most
constexpr Duration kSlowTime = milliseconds(5);     // of a burst
constexpr Duration kLongTime = milliseconds(50);    // even for very few
constexpr std::size_t kLine = 63;                   // sizes are multiples of one more
constexpr std::size_t kLargeBytes = 1 << 20;        // of a message, at most
constexpr std::size_t kNearBytes = 128 << 10;  // that are in a core's own caches when it copies
constexpr std::size_t kFarBytes = 2 << 20;     // and that are not
constexpr std::size_t kSmallBytes = 64;        // of the messages that show the time per message

// Bursts of 1, 2, 4, … messages. The last of them shall take a while.
struct Bursts {
  std::size_t message_bytes = 0;
  int most = 0;     // messages
  int repeats = 8;  // of each length
  Duration enough = std::chrono::microseconds(400);
  Duration patience = milliseconds(20);  // for all bursts of one length
};

double nanoseconds(Duration time) { return static_cast<double>(time.count()); }

// Messages from one rank to another, or calls of a rank with itself.
class Line {
 public:
  Line(Communicator& comm, std::uint32_t epoch, int from, int to)
      : comm_(comm),
        group_(from == to ? std::vector<int>{from} : std::vector<int>{from, to},
               {.id = kProbeGroups | static_cast<std::uint64_t>(from) << 24 |
                      static_cast<std::uint64_t>(to),
                .epoch = epoch}) {}

  // Both ranks call it; `data` of the first comes to the second in messages of `message_bytes`.
  Request start(std::span<std::int64_t> data, std::size_t message_bytes) {
    Call call{.kind = CallKind::kBroadcast,
              .group = &group_,
              .number = group_.next_call(),
              .in = View(data),
              .out = View(data)};
    call.segment_bytes = message_bytes;
    call.timeout = comm_.options().timeout;
    return comm_.engine().start(call);
  }
  void pass(std::span<std::int64_t> data, std::size_t message_bytes) {
    start(data, message_bytes).wait();
  }
  void pass(std::int64_t& word) { pass({&word, 1}, kSmallBytes); }

 private:
  Communicator& comm_;
  Group group_;
};

// A token goes round through `ranks` until the first rank has had enough; ns per hop.
double token_hop(Communicator& comm, std::uint32_t epoch, const std::vector<int>& ranks) {
  const auto me = std::find(ranks.begin(), ranks.end(), comm.rank()) - ranks.begin();
  const auto count = static_cast<std::ptrdiff_t>(ranks.size());
  const auto rank_at = [&](std::ptrdiff_t i) {
    return ranks[static_cast<std::size_t>((i + count) % count)];
  };
  Line in(comm, epoch, rank_at(me - 1), rank_at(me));
  Line out(comm, epoch, rank_at(me), rank_at(me + 1));
  std::int64_t going_on = 1;
  if (me != 0) {
    while (going_on != 0) {
      in.pass(going_on);
      out.pass(going_on);
    }
    return 0;
  }
  std::vector<double> rounds;
  const TimePoint end = comm.clock().now() + kTokenTime;
  while (going_on != 0) {
    const TimePoint start = comm.clock().now();
    going_on = rounds.size() < kTokenRounds || start < end ? 1 : 0;
    out.pass(going_on);
    in.pass(going_on);
    rounds.push_back(nanoseconds(comm.clock().now() - start) / static_cast<double>(count));
  }
  return median(rounds);
}

// ns that all of `ranks` take to add up a word along a tree; at the first of them.
double tree_time(Communicator& comm, std::uint32_t epoch, const std::vector<int>& ranks) {
  Group group(ranks, {.id = kProbeGroups | kTree, .epoch = epoch});
  std::int64_t word = 0;
  std::vector<double> times;
  for (int i = 0; i < kTrees; ++i) {
    Call call{.kind = CallKind::kAllReduce,
              .group = &group,
              .number = group.next_call(),
              .in = View(std::span(&word, 1)),
              .out = View(std::span(&word, 1))};
    call.algorithm = find_algorithm(call.kind, "tree");
    call.timeout = comm.options().timeout;
    const TimePoint start = comm.clock().now();
    comm.engine().start(call).wait();
    times.push_back(nanoseconds(comm.clock().now() - start));
  }
  return comm.rank() == ranks[0] ? median(times) : 0;
}

// What bursts of each length took: the least of several times, for others may use the cores.
class BurstTimes {
 public:
  explicit BurstTimes(const Bursts& rule) : rule_(rule) {}

  // A burst of `count` messages took so long. How many the next has; 0: no more.
  std::int64_t after(std::int64_t count, Duration time) {
    if (times_.empty() || times_.back().count != count) times_.push_back({count, time, 0, {}});
    Burst& here = times_.back();
    here.least = std::min(here.least, time);
    here.all += time;
    const Duration enough = ++here.repeats < kLeastRepeats ? kLongTime : rule_.patience;
    if (here.repeats < rule_.repeats && here.all < enough) return count;
    const bool goes_on = here.least < (count < kEnough ? kSlowTime : rule_.enough);
    return count < rule_.most && (goes_on || times_.size() < 2) ? 2 * count : 0;
  }

  // ns by which each message more prolongs a burst. Whatever held up some bursts: it is no longer
  // than the longest burst says, and no less than half of what that says beside the shortest.
  double slope() const {
    const Burst& last = times_.back();
    const double mean = nanoseconds(last.least) / static_cast<double>(last.count);
    const double late = slope(times_[times_.size() > 3 ? times_.size() - 4 : 0], last);
    const double all = std::clamp(slope(times_.front(), last), 0.0, 2 * mean);
    return std::max(1.0, std::clamp(late, all / 2, mean));
  }

 private:
  struct Burst {
    std::int64_t count = 0;
    Duration least{};
    int repeats = 0;
    Duration all{};
  };
  static double slope(const Burst& from, const Burst& to) {
    return nanoseconds(to.least - from.least) / static_cast<double>(to.count - from.count);
  }
  static constexpr std::int64_t kEnough = 16;
  static constexpr int kLeastRepeats = 3;

  Bursts rule_;
  std::vector<Burst> times_;
};

// ns by which each message more prolongs a burst, at the sender; 0 at the receiver.
double burst_slope(Line& there, Line& back, bool sends, Communicator& comm, const Bursts& rule) {
  const std::size_t words = rule.message_bytes / sizeof(std::int64_t);
  std::vector<std::int64_t> data(static_cast<std::size_t>(rule.most) * words);  // touched here
  BurstTimes times(rule);
  std::int64_t count = 1;
  while (true) {
    there.pass(count);
    if (count == 0) break;
    const TimePoint start = comm.clock().now();
    there.pass(std::span(data).first(static_cast<std::size_t>(count) * words), rule.message_bytes);
    std::int64_t answer = 0;
    back.pass(answer);
    if (sends) count = times.after(count, comm.clock().now() - start);
  }
  return sends ? times.slope() : 0;
}

// A stream of `parts` messages of `part` bytes, all of which are sent at once.
struct Stream {
  std::int64_t part = 0;
  std::int64_t parts = 0;
};

struct StreamReading {
  std::int64_t elapsed = 0;  // ns, at the receiver, which knows the speed
  double bytes_per_second = 0;
};

Stream stream_of(double bytes, std::size_t segment) {
  const auto part = static_cast<std::size_t>(bytes / kParts);
  Stream stream;
  stream.part = static_cast<std::int64_t>(std::min(segment, std::max(part, kLeastPart)) & ~kLine);
  stream.parts = std::clamp(static_cast<std::int64_t>(bytes) / stream.part,
                            std::int64_t{kParts / 2}, std::int64_t{2 * kParts});
  return stream;
}

StreamReading read_stream(Line& there, const Stream& stream, Communicator& comm) {
  const std::size_t words = static_cast<std::size_t>(stream.part) / sizeof(std::int64_t);
  std::vector<std::int64_t> data(static_cast<std::size_t>(stream.parts) * words);
  std::vector<Request> requests;
  const TimePoint start = comm.clock().now();
  for (std::size_t first = 0; first < data.size(); first += words) {
    requests.push_back(
        there.start(std::span(data).subspan(first, words), static_cast<std::size_t>(stream.part)));
  }
  std::vector<TimePoint> arrivals;
  for (Request& request : requests) {
    request.wait();
    arrivals.push_back(comm.clock().now());
  }
  return {(arrivals.back() - start).count(),
          static_cast<double>(stream.part) / time_between(arrivals, start) * 1e9};
}

// Bytes per second at which messages come, by a stream that takes some time, whatever the link; at
// the receiver. 0 at the sender.
double stream_speed(Line& there, Line& back, bool sends, Communicator& comm, std::size_t segment) {
  const std::size_t coarse = std::min(std::size_t{16} << 10, segment);
  const double time =
      burst_slope(there, back, sends, comm, {coarse, 64, 3, milliseconds(2), milliseconds(5)});
  double bytes = nanoseconds(kStreamTime) / std::max(1.0, time) * static_cast<double>(coarse);
  while (true) {
    Stream stream = stream_of(bytes, segment);
    there.pass(stream.part);
    there.pass(stream.parts);
    StreamReading reading = read_stream(there, stream, comm);
    back.pass(reading.elapsed);
    const bool longest = stream.parts == 2 * kParts && stream.part == stream_of(1e18, segment).part;
    if (longest || reading.elapsed > kStreamTime.count() / 2)
      return sends ? 0 : reading.bytes_per_second;
    bytes = 3 * static_cast<double>(stream.part * stream.parts);  // the bursts were held up
  }
}

// ns of one all-reduce in a row of some, by the shortest row: others may use the cores.
double row_time(Communicator& comm, const Group& group, std::vector<float>& data,
                const char* family, int calls) {
  constexpr int kRows = 10;
  double least = 1e18;
  for (int row = 0; row < kRows; ++row) {
    const TimePoint start = comm.clock().now();
    for (int i = 0; i < calls; ++i) {
      Call call{.kind = CallKind::kAllReduce,
                .group = &group,
                .number = group.next_call(),
                .in = View(data),
                .out = View(data)};
      call.algorithm = find_algorithm(call.kind, family);
      call.segment_bytes = comm.options().segment_bytes;
      call.timeout = comm.options().timeout;
      comm.engine().start(call).wait();
    }
    least = std::min(least, nanoseconds(comm.clock().now() - start) / calls);
  }
  return least;
}

template <class Body>
double least_time(Clock& clock, const Body& body) {
  double least = 1e18;
  for (int i = 0; i < 16; ++i) {
    const TimePoint start = clock.now();
    body();
    least = std::min(least, nanoseconds(clock.now() - start));
  }
  return std::max(1.0, least);
}

}  // namespace

LinkReading read_link(Communicator& comm, std::uint32_t epoch, const std::vector<int>& ranks,
                      Way way) {
  LinkReading reading{.known = 1, .hop = token_hop(comm, epoch, ranks)};
  if (way == Way::kWithinHost) reading.tree = tree_time(comm, epoch + 2, ranks);
  if (comm.rank() != ranks[0] && comm.rank() != ranks[1]) return {};
  const bool sends = comm.rank() == ranks[0];
  Line there(comm, epoch + 1, ranks[0], ranks[1]);
  Line back(comm, epoch + 1, ranks[1], ranks[0]);
  const double slope = burst_slope(there, back, sends, comm, {kSmallBytes, 1024});
  reading.per_message = std::min(slope, reading.hop);  // which is one message, and more
  const std::size_t most = std::min(kLargeBytes, comm.engine().transport().max_message_bytes());
  const std::size_t bytes =
      std::max(kSmallBytes, std::min(comm.options().segment_bytes, most) & ~kLine);
  if (way == Way::kBetweenHosts) {
    const double speed = stream_speed(there, back, sends, comm, bytes);
    return sends ? reading : LinkReading{.bytes_per_second = speed};
  }
  const double large = burst_slope(there, back, sends, comm, {bytes, 16});
  reading.bytes_per_second =
      static_cast<double>(bytes) / std::max(1.0, large - reading.per_message) * 1e9;
  return sends ? reading : LinkReading{};
}

std::vector<CallTime> read_calls(Communicator& comm, std::uint32_t epoch,
                                 const std::vector<int>& ranks) {
  const Group group(ranks, {.id = kProbeGroups | kCalls, .epoch = epoch});
  std::vector<CallTime> times;
  for (const auto& [bytes, calls] : {std::pair{std::size_t{64}, 12}, {std::size_t{256} << 10, 4}}) {
    std::vector<float> data(bytes / sizeof(float));
    for (const char* family : {"direct", "ring", "halving_doubling", "tree"}) {
      times.push_back({find_algorithm(CallKind::kAllReduce, family), bytes,
                       row_time(comm, group, data, family, calls)});
    }
  }
  return times;
}

HostReading read_host(Communicator& comm, std::uint32_t epoch) {
  Line alone(comm, epoch, comm.rank(), comm.rank());
  std::int64_t word = 0;
  HostReading reading;
  constexpr int kCalls = 32;
  reading.call = least_time(comm.clock(),
                            [&] {
                              for (int i = 0; i < kCalls; ++i) alone.pass(word);
                            }) /
                 kCalls;
  std::vector<float> a(kFarBytes / sizeof(float), 1.0F);
  std::vector<float> b(a.size(), 1.0F);
  const auto copied = [&](std::size_t bytes) {
    return least_time(comm.clock(), [&] { std::memcpy(a.data(), b.data(), bytes); });
  };
  const auto reduced = [&](std::size_t bytes) {
    const View out{std::span(a).first(bytes / sizeof(float))};
    return least_time(comm.clock(), [&] {
      reduce(out, std::as_bytes(std::span(b).first(out.count)), ReduceOp::kSum);
    });
  };
  reading.copy_bytes_per_second = kNearBytes / copied(kNearBytes) * 1e9;
  // Receiving copies, from what another core has written; what reducing costs is what it takes
  // beyond that.
  const double taken = copied(kFarBytes);
  const double more = std::max(0.1 * taken, reduced(kFarBytes) - taken);
  reading.reduce_bytes_per_second = kFarBytes / more * 1e9;
  return reading;
}

}  // namespace motley
