#include "comm/topology/reading.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "comm/executor/engine.h"
#include "comm/kernel/reduce.h"

namespace motley {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kProbeGroups = std::uint64_t{1} << 62;
constexpr Duration kTokenTime = milliseconds(3);                 // for which a token goes round
constexpr Duration kBurstTime = std::chrono::microseconds(400);  // the last burst may take longer
constexpr Duration kSlowTime = milliseconds(5);  // after one that takes so long there is one more
constexpr int kRepeats = 8;  // of a burst: the least time counts, for others may use the cores
constexpr std::size_t kSmallBytes = 64;  // of the messages that show the time per message
constexpr int kEnough = 16;              // messages in a burst, unless it is slow
constexpr int kSmallMost = 1024;         // messages in a burst
constexpr int kLargeMost = 16;

double nanoseconds(Duration time) { return static_cast<double>(time.count()); }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

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
  void pass(std::span<std::int64_t> data, std::size_t message_bytes) {
    Call call{.kind = CallKind::kBroadcast,
              .group = &group_,
              .number = group_.next_call(),
              .in = View(data),
              .out = View(data)};
    call.segment_bytes = message_bytes;
    call.timeout = comm_.options().timeout;
    comm_.engine().start(call).wait();
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
    going_on = rounds.size() < 8 || start < end ? 1 : 0;
    out.pass(going_on);
    in.pass(going_on);
    rounds.push_back(nanoseconds(comm.clock().now() - start) / static_cast<double>(count));
  }
  return median(rounds);
}

// ns by which each message more prolongs a burst, at the sender; 0 at the receiver.
double burst_slope(Line& there, Line& back, bool sends, Communicator& comm, std::size_t bytes,
                   int most) {
  const std::size_t words = bytes / sizeof(std::int64_t);
  std::vector<std::int64_t> data(static_cast<std::size_t>(most) * words);  // pages are touched here
  std::map<std::int64_t, double> least;  // by messages in the burst
  std::int64_t count = 1;
  for (int repeat = 0;; ++repeat) {
    there.pass(count);
    if (count == 0) break;
    const TimePoint start = comm.clock().now();
    there.pass(std::span(data).first(static_cast<std::size_t>(count) * words), bytes);
    std::int64_t answer = 0;
    back.pass(answer);
    if (!sends) continue;
    const Duration time = comm.clock().now() - start;
    const auto it = least.try_emplace(count, nanoseconds(time)).first;
    it->second = std::min(it->second, nanoseconds(time));
    if (repeat % kRepeats != kRepeats - 1 && time < kSlowTime) continue;
    const double here = least[count];
    const bool goes_on =
        count < kEnough ? here < nanoseconds(kSlowTime) : here < nanoseconds(kBurstTime);
    count = count < most && (goes_on || least.size() < 2) ? 2 * count : 0;
  }
  if (!sends) return 0;
  const auto last = std::prev(least.end());
  const auto before = least.size() > 3 ? std::prev(last, 3) : least.begin();
  return std::max(
      1.0, (last->second - before->second) / static_cast<double>(last->first - before->first));
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

LinkReading read_link(Communicator& comm, std::uint32_t epoch, const std::vector<int>& ranks) {
  LinkReading reading{.known = 1, .hop = token_hop(comm, epoch, ranks)};
  if (comm.rank() != ranks[0] && comm.rank() != ranks[1]) return {};
  const bool sends = comm.rank() == ranks[0];
  Line there(comm, epoch + 1, ranks[0], ranks[1]);
  Line back(comm, epoch + 1, ranks[1], ranks[0]);
  reading.per_message = burst_slope(there, back, sends, comm, kSmallBytes, kSmallMost);
  const std::size_t bytes =
      std::min(comm.options().segment_bytes, comm.engine().transport().max_message_bytes()) &
      ~std::size_t{63};
  const double large = burst_slope(there, back, sends, comm, bytes, kLargeMost);
  reading.bytes_per_second =
      static_cast<double>(bytes) / std::max(1.0, large - reading.per_message) * 1e9;
  return sends ? reading : LinkReading{};
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
  std::vector<float> a(std::size_t{32} << 10, 1.0F);
  std::vector<float> b(a.size(), 1.0F);
  const View out(a);
  const ConstView in{View(b)};
  const auto bytes = static_cast<double>(out.size_bytes());
  const double copied =
      least_time(comm.clock(), [&] { std::memcpy(out.data, in.data, out.size_bytes()); });
  const double reduced = least_time(comm.clock(), [&] { reduce(out, in.bytes(), ReduceOp::kSum); });
  reading.copy_bytes_per_second = bytes / copied * 1e9;
  // Receiving copies; what reducing costs is what it takes beyond that.
  reading.reduce_bytes_per_second = bytes / std::max(0.1 * copied, reduced - copied) * 1e9;
  return reading;
}

}  // namespace motley
