#include "comm/partial_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/executor/arguments.h"
#include "comm/executor/engine.h"
#include "comm/executor/partial_reducer.h"
#include "comm/group/sketch.h"

namespace motley {
namespace {

// What withdraw() and the destructor wait for an answer at most; the controller acts on the message
// all the same.
constexpr Duration kLastWords = seconds(1);
constexpr Duration kLookForController = seconds(0.01);
constexpr double kMaxSeconds = 1e6;  // eleven days; keeps sums of durations far from overflow

template <class T>
void require(bool holds, const char* option, const T& is, const std::string& range) {
  if (holds) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("partial_reduce: {} is {}. Use {}.", option, is, range));
}

void require_between(double least, double most, const char* option, double is) {
  require(is >= least && is <= most, option, fmt::format("{:.9g}", is),
          fmt::format("{} to {}", least, most));
}

// As a Duration: in seconds the most that is allowed may come out a little above itself.
void require_up_to_most(const char* option, Duration is) {
  require(is >= Duration::zero() && is <= seconds(kMaxSeconds), option,
          fmt::format("{:.9g}", to_seconds(is)), fmt::format("0 to {}", kMaxSeconds));
}

// As where all members find what is no number while pieces are under way.
bool gives_nothing(const std::vector<double>& weights) {
  return std::all_of(weights.begin(), weights.end(), [](double weight) { return weight == 0; });
}

// With one rank there are no groups, of whatever size.
void check_options(const PartialOptions& options, int ranks) {
  const int p = options.group_size;
  if (ranks > 1) {
    require(p == 0 || (p >= 2 && p <= ranks), "group_size", p,
            fmt::format("2 to {}, which is all ranks, or 0 to have it adapted", ranks));
    require(options.largest_group == 0 ||
                (options.largest_group >= std::max(p, 2) && options.largest_group <= ranks),
            "largest_group", options.largest_group,
            fmt::format("{} (group_size, 2 at least) to {}, which is all ranks, or 0",
                        std::max(p, 2), ranks));
  }
  require_up_to_most("timeout in seconds", options.timeout);
  require_up_to_most("least_patience in seconds", options.least_patience);
  require_between(0, 1, "linger in steps", options.linger);
  require(options.local_steps >= 0, "local_steps", options.local_steps, "0 or more");
  require(options.guard <= Guard::kNone, "guard", static_cast<int>(options.guard),
          "kBridge (0) or kNone (1)");
  require(options.payload <= Payload::kInt8, "payload", static_cast<int>(options.payload),
          "kExact (0), kBFloat16 (1) or kInt8 (2)");
  check(options.weighting);
  if (options.payload != Payload::kExact && options.weighting.damped) {
    throw Error(ErrorCode::kInvalid,
                "partial_reduce: damped weights give each member another average, which cannot be "
                "sent in short numbers. Use Payload::kExact, or weights that are not damped.");
  }
}

}  // namespace

PartialReducer::Impl::Impl(Communicator& comm_, const PartialOptions& options_)
    : comm(comm_),
      control(comm_.control()),
      options(options_),
      copies(comm_),
      group_average(comm_),
      lossy_average(comm_, options_.payload),
      pieces(comm_, options_.piece_bytes),
      usual_patience(options_.least_patience) {
  check_options(options, comm.size());
  if (options.timeout == Duration::zero()) options.timeout = comm.options().timeout;
  if (comm.size() == 1) return;
  if (control == nullptr) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("partial_reduce: the communicator of {} ranks has no controller to form "
                    "groups. Join with Options::controller set.",
                    comm.size()));
  }
}

PartialResult PartialReducer::Impl::average(View data, std::int64_t step, StreamRef stream,
                                            Part part, const std::optional<Begun>& begun_before) {
  check_left(step);
  if (begun) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("partial_reduce: step {} was begun. Call finish().", begun->step));
  }
  if (options.payload != Payload::kExact && data.dtype != DType::kFloat32) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("partial_reduce: models of {} cannot be sent in short numbers. Use "
                            "Payload::kExact, or float32.",
                            name(data.dtype)));
  }
  if (data.memory == Memory::kDevice) check_memory("partial_reduce", {{"data", data}});
  PartialResult result{.group = {comm.rank()}, .weights = {1}, .version = step};
  const TimePoint start = comm.clock().now();
  const TimePoint deadline = start + options.timeout;
  take_announcement(step, start);
  const ConstView own = copies.bring(data, stream, deadline, last_average);
  ReadyNote note = look_at(own, step);
  result.was_not_finite = !note.gives && part == Part::kGives;
  if (comm.size() == 1) return result;
  note.gives = note.gives && part == Part::kGives;
  note.large = note.large && note.gives;
  result.version = note.version;
  if (in_pieces()) {
    if (!begun_before) pieces.begin(own);
    pieces.ready_all();
  }
  try {
    GroupOutcome outcome = wait_for_group(step, note, deadline);
    result.waiting = comm.clock().now() - start;
    result.controller_away = outcome.kind == GroupOutcome::kAway;
    run(std::move(outcome), note, data, own, deadline, result);
  } catch (const Error&) {
    pieces.cancel();
    withdraw();  // whatever the controller still has in mind for this step, we have no part in it
    throw;
  }
  version = result.version;
  last_step = step;
  last_sketch = result.solo() ? note.sketch : sketch_of(last_average);
  result.averaging = comm.clock().now() - start - result.waiting;
  return result;
}

void PartialReducer::Impl::check_left(std::int64_t step) const {
  if (!left) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("partial_reduce: rank {} calls average at step {} after leave. Make "
                          "another PartialReducer to come back.",
                          comm.rank(), step));
}

// The controller is told what it was told last; what is true by then, it learns in average().
void PartialReducer::Impl::announce(std::int64_t step, Duration eta, Duration ahead) {
  check_left(step);
  if (comm.size() == 1) return;
  announcement = {step, comm.clock().now()};
  if (eta <= Duration::zero()) eta = usual_eta.next().value_or(Duration{});
  if (eta <= Duration::zero()) return;
  ReadyNote note = last_note;
  note.grouping = grouping();
  note.version = version_at(step);
  note.gives = true;
  note.eta = eta;
  note.ahead = ahead;
  control->announce(step, note);
}

void PartialReducer::Impl::take_announcement(std::int64_t step, TimePoint now) {
  const auto made = std::exchange(announcement, std::nullopt);
  if (!made || made->step != step) return;
  usual_eta.took(std::max(now - made->at, Duration(1)));
}

// Half of the time left at most, so that there is time for another attempt, and in the end an end.
Duration PartialReducer::Impl::patience_for(const GroupOutcome& outcome, TimePoint deadline) const {
  const Duration most = (deadline - comm.clock().now()) / 2;
  const auto usual = usual_patience.limit(outcome.members.size(), outcome.tag.attempt);
  if (outcome.kind != GroupOutcome::kGroup || !usual) return most;
  return std::min(most, outcome.note.begins + *usual);
}

// Hands the last average on first, if others need it. A controller that is away costs a few local
// steps nothing; then it is waited for.
GroupOutcome PartialReducer::Impl::wait_for_group(std::int64_t step, const ReadyNote& note,
                                                  TimePoint deadline) {
  while (true) {
    GroupOutcome outcome = control->ready(step, note, deadline, pieces.under_way());
    if (outcome.kind == GroupOutcome::kHeal) {
      hand_on(outcome, deadline);
      continue;
    }
    if (outcome.kind != GroupOutcome::kAway) {
      steps_away = 0;
      return outcome;
    }
    if (steps_away < options.local_steps) {
      ++steps_away;
      return outcome;
    }
    if (comm.clock().now() >= deadline) {
      throw Error(
          ErrorCode::kPeerLost,
          fmt::format("partial_reduce: rank {} has made {} steps on its own and waited {:.1f} "
                      "s for the controller at {}. Start it again at this address.",
                      comm.rank(), steps_away, to_seconds(options.timeout), control->controller()));
    }
    comm.clock().sleep_until(std::min(deadline, comm.clock().now() + kLookForController));
  }
}

// Averages until an attempt is complete, or this rank is alone. The controller is told how each
// went; what comes next is in its answer.
GroupOutcome PartialReducer::Impl::run(GroupOutcome outcome, const ReadyNote& note, View data,
                                       ConstView own, TimePoint deadline, PartialResult& result) {
  while (outcome.kind == GroupOutcome::kGroup || outcome.kind == GroupOutcome::kHeal) {
    const Group group(outcome.members, outcome.tag);
    comm.engine().retire_before(group.tag());
    result.attempts = static_cast<int>(outcome.tag.attempt) + 1;
    const Duration most = patience_for(outcome, deadline);
    const View average = copies.shadow_of(data);
    if (outcome.kind == GroupOutcome::kGroup && gives_nothing(outcome.note.weights)) {
      pieces.cancel();
      control->done(group.tag(), group.ranks());  // each stays as it was, as alone
      break;
    }
    const auto give_up = [&](ErrorCode code, int suspect) {
      if (auto other = control->replaced(group.tag(), deadline)) return std::move(*other);
      std::vector<int> named = group.ranks();
      named.insert(named.end(), outcome.note.keepers.begin(), outcome.note.keepers.end());
      GroupOutcome next = control->fail(group.tag(), named, {code, suspect}, note, deadline);
      if (next.kind == GroupOutcome::kSolo) ++result.attempts;
      return next;
    };
    try {
      if (outcome.kind == GroupOutcome::kHeal) {
        comm.broadcast(average, outcome.note.donor,
                       {.group = &group, .timeout = std::max(most, Duration(1))})
            .wait();
      } else if (!average_once(group, outcome, note, own, average, most)) {
        outcome = give_up(ErrorCode::kInvalid, -1);
        continue;
      } else if (auto other = control->replaced(group.tag(), deadline)) {
        outcome = std::move(*other);
        continue;
      }
    } catch (const Error& error) {
      const bool may_recover =
          error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kTimeout;
      const bool in_time = deadline - comm.clock().now() >= options.timeout / 64;
      if (!may_recover || !in_time) throw;
      outcome = give_up(error.code(), error.ranks().empty() ? -1 : error.ranks().front());
      continue;
    }
    if (options.payload != Payload::kExact) lossy_average.commit();
    copies.commit(data, average, options.timeout);
    last_average = average;
    control->done(group.tag(), group.ranks());
    result.group = group.ranks();
    result.healed = outcome.kind == GroupOutcome::kHeal;
    result.weights = std::move(outcome.note.weights);
    if (result.healed) result.weights.clear();
    result.version = std::max(outcome.note.version, note.version);
    result.staleness = result.version - note.version;
    break;
  }
  return outcome;
}

// Members of the last group that have not completed it take what this rank kept of it. Whether that
// succeeds is for them to say: this rank still has it.
void PartialReducer::Impl::hand_on(const GroupOutcome& outcome, TimePoint deadline) noexcept {
  const Group group(outcome.members, outcome.tag);
  try {
    const Duration patience = (deadline - comm.clock().now()) / 4;
    comm.broadcast(last_average, outcome.note.donor,
                   {.group = &group, .timeout = std::max(patience, Duration(1))})
        .wait();
  } catch (const std::exception&) {
    // As above.
  }
  control->done(group.tag(), group.ranks());
}

// What the controller is told of the model. A version grows with the steps that the rank makes.
ReadyNote PartialReducer::Impl::look_at(ConstView own, std::int64_t step) {
  const Magnitude is = magnitude(own, comm.size());
  ReadyNote note{.grouping = grouping(),
                 .version = version_at(step),
                 .gives = is != Magnitude::kNotFinite,
                 .large = is == Magnitude::kLarge,
                 .sketch = sketch_of(own)};
  if (version) note.moved = static_cast<float>(std::sqrt(distance2(note.sketch, last_sketch)));
  last_note = note;
  return note;
}

Grouping PartialReducer::Impl::grouping() const {
  return {.group_size = options.group_size,
          .largest_group = options.largest_group,
          .linger = options.linger,
          .guard = options.guard,
          .weighting = options.weighting};
}

void PartialReducer::Impl::withdraw() noexcept {
  try {
    control->withdraw(comm.clock().now() + kLastWords);
  } catch (const std::exception&) {
    // The controller is gone, or this rank counts as dead: nobody waits for it.
  }
}

void PartialReducer::Impl::leave(Duration patience) {
  if (std::exchange(left, true) || control == nullptr) return;
  pieces.cancel();  // of a step that was begun
  begun.reset();
  const TimePoint deadline = comm.clock().now() + patience;
  while (true) {
    const GroupOutcome outcome = control->leave(deadline);
    if (outcome.kind != GroupOutcome::kHeal) return;
    hand_on(outcome, deadline);
  }
}

PartialReducer::PartialReducer(Communicator& comm, const PartialOptions& options)
    : impl_(std::make_unique<Impl>(comm, options)) {}

PartialReducer::PartialReducer(PartialReducer&&) noexcept = default;

PartialReducer::~PartialReducer() {
  if (impl_ == nullptr) return;  // moved from
  try {
    impl_->leave(kLastWords);
  } catch (const std::exception&) {
    // As in withdraw().
  }
}

PartialResult PartialReducer::average(View data, std::int64_t step, StreamRef stream) {
  return impl_->average(data, step, stream, Impl::Part::kGives);
}

PartialResult PartialReducer::join(View data, std::int64_t step, StreamRef stream) {
  return impl_->average(data, step, stream, Impl::Part::kTakes);
}

void PartialReducer::begin(View data, std::int64_t step, Duration eta) {
  impl_->begin(data, step, eta);
}
void PartialReducer::ready(std::size_t first, std::size_t count) { impl_->ready(first, count); }
PartialResult PartialReducer::finish() { return impl_->finish(); }

void PartialReducer::announce(std::int64_t step, Duration eta) { impl_->announce(step, eta); }

void PartialReducer::cancel_announcement() {
  if (std::exchange(impl_->announcement, std::nullopt)) impl_->withdraw();
}

void PartialReducer::leave() { impl_->leave(impl_->options.timeout); }

}  // namespace motley
