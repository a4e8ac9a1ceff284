// comm/transport/nccl.h where NCCL is there: begins, watches and ends calls.
#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "comm/call_kind.h"
#include "comm/device.h"
#include "comm/error.h"
#include "comm/transport/nccl.h"
#include "comm/transport/nccl_communicator.h"
#include "comm/transport/nccl_part.h"

namespace motley {
namespace {

constexpr Duration kEndOfKernels = seconds(10);  // that were aborted
constexpr Duration kLook = seconds(0.000'02);
constexpr std::size_t kFirstBytes = 8;  // of the first message to each member

// In the scratch, each member of a call has a multiple of 16 bytes, and the first messages to and
// from all members lie side by side.
std::size_t checked_scratch(const NcclSetup& setup) {
  const std::size_t least = 2 * kFirstBytes * static_cast<std::size_t>(setup.size);
  if (setup.scratch_bytes >= least) return setup.scratch_bytes;
  throw Error(ErrorCode::kInvalid,
              fmt::format("NCCL: {} bytes of scratch are too few for {} ranks, which need {}. Set "
                          "Options::nccl_scratch (MOTLEY_NCCL_SCRATCH) to that or more.",
                          setup.scratch_bytes, setup.size, least));
}

// A call in its stream.
struct NcclRun final : TeamRun {
  NcclCommunicator* comm = nullptr;
  Event end;                   // of the call in its stream
  std::optional<Error> error;  // why it did not get there
  std::string name;            // "all_reduce #5"
};

Error aborted(const NcclCommunicator& comm, ErrorCode code) {
  const Error& why = *comm.aborted();
  return Error(code,
               fmt::format("NCCL's communicator of {} ranks was aborted: {}. It is not used again: "
                           "go on with a group of another tag, or with MOTLEY_NCCL=off.",
                           comm.group().size(), why.what()),
               why.ranks());
}

// Calls of a communicator run one after another, and the first that does not complete ends those
// beside it. What broke the communicator broke them, too, whichever of them it was heard of.
ErrorCode code_beside(const NcclCommunicator& comm) {
  const ErrorCode why = comm.aborted()->code();
  return why == ErrorCode::kPeerLost || why == ErrorCode::kIo ? why : ErrorCode::kAborted;
}

class NcclTeam final : public Nccl {
 public:
  explicit NcclTeam(const NcclSetup& setup)
      : rank_(setup.rank),
        size_(setup.size),
        clock_(setup.clock),
        scratch_(checked_scratch(setup)) {}
  ~NcclTeam() override {
    try {
      if (!device_) return;
      const UseDevice use(*device_);
      stop_connecting();
      communicators_.clear();
    } catch (const Error&) {
      // The device is gone, and what was on it.
    }
  }

  void connect(const Group& group, const NcclId& id, TimePoint deadline) override {
    std::optional<UseDevice> use;
    if (device_) use.emplace(*device_);
    connecting_ = std::make_unique<NcclCommunicator>(group, rank_, id, clock_);
    if (!device_) device_ = current_device();
    connecting_->set_deadline(deadline);
    greeted_ = false;
  }
  bool connected() override;
  void stop_connecting() noexcept override {
    if (connecting_) connecting_->abort(Error(ErrorCode::kAborted, "it was not connected in time"));
    connecting_.reset();
  }
  int communicators() const noexcept override { return static_cast<int>(communicators_.size()); }
  bool has(const Group& group) const noexcept override { return own_of(group) != nullptr; }

  bool runs(CallKind kind, std::size_t, int) const noexcept override {
    return kind != CallKind::kBarrier && kind != CallKind::kSendRecv;
  }
  Duration price(CallKind, std::size_t, const Topology&) const override { return kLook; }
  bool compares() const noexcept override { return false; }
  TeamRun& begin(const TeamCall& call) override;
  bool advance(TeamRun& run) override;
  void end(TeamRun& run, const Error* why) noexcept override;
  SharedBuffer allocate(std::size_t) override {
    throw Error(ErrorCode::kUnavailable,
                "NCCL: ranks share no device memory. Make a DeviceBuffer on each.");
  }

 private:
  NcclCommunicator* own_of(const Group& group) const noexcept;
  NcclCommunicator& communicator_of(const Group& group) const;
  void greet();
  void launch(const TeamCall& call, NcclRun& run);
  void give_up(NcclCommunicator& comm, const Error& why) noexcept;

  int rank_;
  int size_;
  Clock& clock_;
  std::optional<int> device_;  // from the first connect() on
  NcclScratch scratch_;
  std::vector<std::unique_ptr<NcclCommunicator>> communicators_;  // that of all ranks is the first
  std::unique_ptr<NcclCommunicator> connecting_;
  bool greeted_ = false;
  std::list<NcclRun> runs_;
  std::optional<Event> last_;  // the end of the call that began last
};

// A communicator connects to a peer when it first talks to it. That happens here, where all members
// wait for each other, and not in the middle of a call.
void NcclTeam::greet() {
  greeted_ = true;
  const Group& group = connecting_->group();
  const TeamCall hello{.id = {group.tag(), 0},
                       .fingerprint = {.kind = CallKind::kAllToAll, .dtype = DType::kInt8},
                       .group = &group};
  const std::size_t count = kFirstBytes * static_cast<std::size_t>(group.size());
  TeamCall call = hello;
  call.in = scratch_.view(0, count, DType::kInt8);
  call.out = scratch_.view(scratch_.size_bytes() / 2, count, DType::kInt8);
  NcclRun& run = runs_.emplace_back();
  run.comm = connecting_.get();
  launch(call, run);
}

bool NcclTeam::connected() {
  const UseDevice use(*device_);
  if (!connecting_->settled()) return false;
  if (!greeted_) greet();
  if (!runs_.back().end.done()) return false;
  runs_.pop_back();
  communicators_.push_back(std::move(connecting_));
  return true;
}

NcclCommunicator* NcclTeam::own_of(const Group& group) const noexcept {
  const auto found = std::ranges::find_if(communicators_, [&](const auto& comm) {
    return comm->group().tag() == group.tag() && comm->group().ranks() == group.ranks();
  });
  return found == communicators_.end() ? nullptr : found->get();
}

NcclCommunicator& NcclTeam::communicator_of(const Group& group) const {
  NcclCommunicator* const own = own_of(group);
  NcclCommunicator& comm = own != nullptr ? *own : *communicators_.at(0);
  if (!comm.aborted()) return comm;
  throw aborted(comm, ErrorCode::kAborted);
}

TeamRun& NcclTeam::begin(const TeamCall& call) {
  const UseDevice use(*device_);
  NcclRun& run = runs_.emplace_back();
  run.name = fmt::format("{} #{}{}", motley::name(call.fingerprint.kind), call.id.number,
                         scope_text(call.id.group));
  try {
    run.comm = &communicator_of(*call.group);
    run.comm->set_deadline(clock_.now() + call.timeout);
    launch(call, run);
  } catch (const Error& error) {
    run.error = error;
  }
  return run;
}

// All calls share the scratch, and NCCL wants them in one order: each waits for the one before.
void NcclTeam::launch(const TeamCall& call, NcclRun& run) {
  if (!last_) last_.emplace();
  last_->hold(call.stream);
  NcclPart(*run.comm, call, rank_, scratch_).run();
  run.end.record(call.stream);
  last_->record(call.stream);
}

bool NcclTeam::advance(TeamRun& base) {
  auto& run = static_cast<NcclRun&>(base);
  if (run.state != TeamRun::State::kRuns) return false;
  if (run.error) {
    run.state = TeamRun::State::kGone;
    throw *run.error;
  }
  const UseDevice use(*device_);
  try {
    if (run.comm->broken()) throw *run.comm->broken();
    if (run.comm->aborted()) throw aborted(*run.comm, code_beside(*run.comm));
    (void)run.comm->settled();
    if (!run.end.done()) return false;
  } catch (const Error&) {
    run.state = TeamRun::State::kGone;
    throw;
  }
  run.state = TeamRun::State::kDone;
  return true;
}

void NcclTeam::end(TeamRun& base, const Error* why) noexcept {
  auto& run = static_cast<NcclRun&>(base);
  if (run.state != TeamRun::State::kDone && run.comm != nullptr) {
    try {
      const UseDevice use(*device_);
      const std::string text =
          fmt::format("{} did not complete{}{}", run.name, why ? ": " : "", why ? why->what() : "");
      give_up(*run.comm,
              why ? Error(why->code(), text, why->ranks()) : Error(ErrorCode::kAborted, text));
    } catch (const Error&) {
      // The device is gone, and what was on it.
    }
  }
  runs_.remove_if([&](const NcclRun& other) { return &other == &run; });
}

// Afterwards nothing of its calls is under way on the device.
void NcclTeam::give_up(NcclCommunicator& comm, const Error& why) noexcept {
  comm.abort(why);
  const TimePoint patience = clock_.now() + kEndOfKernels;
  for (const NcclRun& run : runs_) {
    if (run.comm != &comm) continue;
    try {
      while (!run.end.done() && clock_.now() < patience) clock_.sleep_until(clock_.now() + kLook);
    } catch (const Error&) {
      // An aborted call may end in an error; it has ended.
    }
  }
}

}  // namespace

std::unique_ptr<Nccl> make_nccl(const NcclSetup& setup) {
  return std::make_unique<NcclTeam>(setup);
}

}  // namespace motley
