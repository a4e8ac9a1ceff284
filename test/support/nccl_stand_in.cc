#include "test/support/nccl_stand_in.h"

#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "test/support/device_emulated.h"
#include "test/support/nccl_clique.h"

namespace motley::test {
namespace {

struct Meeting {
  explicit Meeting(int size) : clique(size) {}
  NcclClique clique;
  std::vector<int> devices;  // of those that have come
};

}  // namespace
}  // namespace motley::test

using motley::StreamRef;
using motley::test::Meeting;
using motley::test::NcclLaunch;
using motley::test::NcclOperation;

struct ncclComm : std::enable_shared_from_this<ncclComm> {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Meeting> meeting;
  ncclResult_t error = ncclSuccess;
  bool ended = false;
  bool finalized = false;
  std::vector<std::shared_ptr<NcclLaunch>> unsettled;  // of the group that ended last
  int looks = 0;                                       // after which that has settled
  std::size_t launched = 0;
  std::size_t finished = 0;          // launches
  std::thread::id group_of;          // who has begun a group with it
  std::map<int, double> operations;  // made for it, by number
};

namespace motley::test {
namespace {

constexpr int kLooks = 2;  // that a group takes to settle

struct Asked {
  ncclComm_t comm;
  StreamRef stream;
  NcclOperation operation;
};

struct Group {  // of a thread
  int depth = 0;
  std::vector<Asked> asked;
};

struct State {
  std::mutex mutex;
  std::map<std::thread::id, Group> groups;
  std::vector<std::shared_ptr<ncclComm>> communicators;  // ended ones too, so that use shows
  std::map<std::string, std::weak_ptr<Meeting>> meetings;
  std::vector<std::string> faults;
  std::map<int, int> broken_launches;  // by rank: how many more go well
  std::vector<int> broken_inits;
  NcclUse use;
  int ids = 0;
  int next_operation = ncclNumOps;
};

State& state() {
  static State only;
  return only;
}

Group& group() { return state().groups[std::this_thread::get_id()]; }

void note(const std::string& fault) {
  auto& faults = state().faults;
  if (std::ranges::find(faults, fault) == faults.end()) faults.push_back(fault);
}

ncclResult_t misuse(const ncclComm* comm, const char* doing, const char* what) {
  note(fmt::format("rank {}: {} {}", comm == nullptr ? -1 : comm->rank, doing, what));
  return ncclInvalidUsage;
}

bool connected(const ncclComm& comm) { return std::ssize(comm.meeting->devices) == comm.size; }

// Whether `comm` may be asked for more.
ncclResult_t enter(ncclComm* comm, const char* doing) {
  if (comm == nullptr || comm->ended) return misuse(comm, doing, "after the communicator's end");
  if (!connected(*comm)) return misuse(comm, doing, "before the communicator was connected");
  if (!comm->unsettled.empty()) return misuse(comm, doing, "before the last group had settled");
  if (comm->finalized) return misuse(comm, doing, "after the communicator was finalized");
  const std::thread::id me = std::this_thread::get_id();
  if (comm->group_of != std::thread::id() && comm->group_of != me)
    return misuse(comm, doing, "while another thread has a group open");
  return comm->error;
}

ncclResult_t ask(ncclComm_t comm, cudaStream_t stream, NcclOperation operation) {
  bool alone = false;
  {
    const std::lock_guard lock(state().mutex);
    const ncclResult_t status = enter(comm, "was asked for an operation");
    if (status != ncclSuccess) return status;
    if (operation.op >= ncclNumOps) {
      const auto made = comm->operations.find(operation.op);
      if (made == comm->operations.end()) return misuse(comm, "reduced", "by no operation");
      operation.weight = made->second;
      operation.op = ncclNumOps;  // weights may differ
    }
    comm->group_of = std::this_thread::get_id();
    alone = group().depth == 0;
    if (alone) group().depth = 1;
    group().asked.push_back({comm, StreamRef{stream}, operation});
  }
  return alone ? ncclGroupEnd() : ncclSuccess;
}

// In its stream. True once it is over.
bool advance(ncclComm& comm, std::size_t number, NcclLaunch& launch) {
  const std::lock_guard lock(state().mutex);
  if (comm.ended) return true;
  if (comm.finished != number) return false;
  const bool done = comm.meeting->clique.advance(comm.rank, launch, state().faults);
  if (launch.broken) comm.error = ncclRemoteError;
  if (done) ++comm.finished;
  return done;
}

// What the last group asked for enters its streams.
void settle(ncclComm& comm) {
  for (const auto& launch : std::exchange(comm.unsettled, {})) {
    const std::size_t number = comm.launched++;
    ++state().use.launches;
    const auto broken = state().broken_launches.find(comm.rank);
    if (broken != state().broken_launches.end() && broken->second-- == 0) launch->broken = true;
    enqueue(launch->stream, [it = comm.shared_from_this(), number, launch] {
      return advance(*it, number, *launch);
    });
  }
}

void end(ncclComm& comm) {
  comm.ended = true;
  comm.unsettled.clear();
  comm.meeting->clique.leave(comm.rank);
  --state().use.alive;
}

// Two ranks on one device are refused by all.
ncclResult_t refused(const ncclComm& comm) {
  std::vector<int> devices = comm.meeting->devices;
  std::ranges::sort(devices);
  return std::ranges::adjacent_find(devices) == devices.end() ? ncclSuccess : ncclInvalidUsage;
}

}  // namespace

void reset_nccl_stand_in() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.communicators.clear();
  all.meetings.clear();
  all.faults.clear();
  all.broken_launches.clear();
  all.broken_inits.clear();
  all.use = {};
}

std::vector<std::string> nccl_faults() {
  const std::lock_guard lock(state().mutex);
  return state().faults;
}

NcclUse nccl_use() {
  const std::lock_guard lock(state().mutex);
  NcclUse use = state().use;
  for (const auto& comm : state().communicators) {
    if (!comm->ended) use.operations += static_cast<int>(comm->operations.size());
  }
  return use;
}

void break_nccl_launch(int rank, int number) {
  const std::lock_guard lock(state().mutex);
  state().broken_launches[rank] = number;
}

void break_nccl_init(int rank) {
  const std::lock_guard lock(state().mutex);
  state().broken_inits.push_back(rank);
}

}  // namespace motley::test

using namespace motley::test;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(state().mutex);
  std::memset(id, 0, sizeof(*id));
  fmt::format_to_n(id->internal, sizeof(id->internal) - 1, "stand-in {}", ++state().ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const int device = motley::current_device();
  const std::lock_guard lock(state().mutex);
  *comm = nullptr;
  if (config->blocking != 0) return misuse(nullptr, "was made", "to block");
  if (std::ranges::count(state().broken_inits, rank) > 0) return ncclSystemError;
  auto made = std::make_shared<ncclComm>();
  made->rank = rank;
  made->size = ranks;
  std::weak_ptr<Meeting>& place = state().meetings[id.internal];
  made->meeting = place.lock();
  if (!made->meeting) place = made->meeting = std::make_shared<Meeting>(ranks);
  if (made->meeting->clique.size() != ranks) return misuse(made.get(), "came", "with another size");
  made->meeting->devices.push_back(device);
  if (connected(*made)) ++state().use.made;
  ++state().use.alive;
  *comm = made.get();
  state().communicators.push_back(std::move(made));
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const std::lock_guard lock(state().mutex);
  *error = ncclInvalidArgument;
  if (comm == nullptr || comm->ended)
    return misuse(comm, "was asked for errors", "after the communicator's end");
  *error = comm->error;
  if (comm->error != ncclSuccess) return ncclSuccess;
  *error = ncclInProgress;
  if (!connected(*comm)) return ncclSuccess;
  if (!comm->unsettled.empty() && comm->looks-- > 0) return ncclSuccess;
  settle(*comm);
  if (comm->finalized && comm->finished != comm->launched) return ncclSuccess;
  *error = comm->error = refused(*comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  const ncclResult_t status = enter(comm, "was finalized");
  if (status != ncclSuccess) return status;
  comm->finalized = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  if (comm == nullptr || comm->ended) return misuse(comm, "was destroyed", "after its end");
  if (!comm->finalized) return misuse(comm, "was destroyed", "before it was finalized");
  if (comm->finished != comm->launched) return misuse(comm, "was destroyed", "in the middle");
  if (!comm->operations.empty()) (void)misuse(comm, "was destroyed", "with operations of its own");
  end(*comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  if (comm == nullptr || comm->ended) return misuse(comm, "was aborted", "after its end");
  end(*comm);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError    ? "remote error"
         : result == ncclInvalidUsage ? "invalid usage"
         : result == ncclSystemError  ? "system error"
                                      : "another error";
}

const char* ncclGetLastError(ncclComm_t) { return "the stand-in was told to fail"; }

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  const ncclResult_t status = enter(comm, "made an operation");
  if (status != ncclSuccess) return status;
  if (residence != ncclScalarHostImmediate) return misuse(comm, "made an operation", "elsewhere");
  const int number = ++state().next_operation;
  comm->operations[number] = type == ncclFloat64 ? *static_cast<const double*>(scalar)
                                                 : *static_cast<const float*>(scalar);
  *op = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  if (comm == nullptr || comm->ended)
    return misuse(comm, "ended an operation", "after its own end");
  return comm->operations.erase(op) == 1 ? ncclSuccess
                                         : misuse(comm, "ended an operation", "that it had not");
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, stream,
             {NcclOperation::kAllReduce, static_cast<const std::byte*>(in),
              static_cast<std::byte*>(out), count, type, op});
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, stream,
             {NcclOperation::kReduceScatter, static_cast<const std::byte*>(in),
              static_cast<std::byte*>(out), count, type, op});
}

ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, stream,
             {NcclOperation::kReduce, static_cast<const std::byte*>(in),
              static_cast<std::byte*>(out), count, type, op, root});
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, stream,
             {NcclOperation::kAllGather, static_cast<const std::byte*>(in),
              static_cast<std::byte*>(out), count, type});
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, stream,
             {NcclOperation::kBroadcast, static_cast<const std::byte*>(in),
              static_cast<std::byte*>(out), count, type, ncclSum, root});
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, stream,
             {NcclOperation::kSend, static_cast<const std::byte*>(data), nullptr, count, type,
              ncclSum, peer});
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return ask(
      comm, stream,
      {NcclOperation::kRecv, nullptr, static_cast<std::byte*>(data), count, type, ncclSum, peer});
}

ncclResult_t ncclGroupStart() {
  const std::lock_guard lock(state().mutex);
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const std::lock_guard lock(state().mutex);
  if (group().depth == 0) return misuse(nullptr, "a group ended", "in a thread that began none");
  if (--group().depth > 0) return ncclSuccess;
  ncclResult_t status = ncclSuccess;
  for (const Asked& asked : std::exchange(group().asked, {})) {
    ncclComm& comm = *asked.comm;
    comm.group_of = {};
    if (comm.ended) continue;
    const bool same = !comm.unsettled.empty() && comm.unsettled.back()->stream == asked.stream;
    if (!same) {
      comm.unsettled.push_back(std::make_shared<NcclLaunch>());
      comm.unsettled.back()->stream = asked.stream;
    }
    comm.unsettled.back()->operations.push_back(asked.operation);
    comm.looks = kLooks;
    status = ncclInProgress;
  }
  return status;
}
