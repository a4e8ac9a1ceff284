#include "comm/cli/perf/motley_subject.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "comm/algorithm/families.h"
#include "comm/cli/perf/plan.h"
#include "comm/device.h"
#include "comm/executor/engine.h"
#include "comm/transport/team.h"
#include "comm/transport/transport.h"
#include "comm/version.h"

namespace motley::perf {
namespace {

class SharedStorage final : public Storage {
 public:
  explicit SharedStorage(SharedBuffer buffer) : buffer_(std::move(buffer)) {}
  Bytes bytes() override { return buffer_.as<std::byte>(); }

 private:
  SharedBuffer buffer_;
};

class DeviceStorage final : public Storage {
 public:
  explicit DeviceStorage(std::size_t bytes) : buffer_(bytes) {}
  Bytes bytes() override { return buffer_.view(buffer_.size_bytes(), DType::kInt8).bytes(); }
  Memory memory() const override { return Memory::kDevice; }

 private:
  DeviceBuffer buffer_;
};

}  // namespace

std::string MotleySubject::library() const {
  const std::string version = version_text();
  return "Motley " + version.substr(0, version.find('\n'));
}

void MotleySubject::greatest(std::span<double> values) {
  comm_.all_reduce(View(values), ReduceOp::kMax).wait();
}

std::unique_ptr<Storage> MotleySubject::allocate(std::size_t bytes, Buffers buffers) {
  if (buffers == Buffers::kPrivate) return private_storage(bytes);
  if (buffers == Buffers::kDevice) return std::make_unique<DeviceStorage>(bytes);
  return std::make_unique<SharedStorage>(comm_.allocate(bytes));
}

Subject::Call MotleySubject::prepare(const Cell& cell, ConstView in, View out) {
  Communicator& comm = comm_;
  CallOptions options;
  if (cell.algorithm != comm.options().algorithm) options.algorithm = cell.algorithm;
  const ReduceOp op = cell.op;
  const int root = cell.root;
  switch (cell.kind) {
    case CallKind::kAllReduce:
      return [=, &comm] { comm.all_reduce(in, out, op, options).wait(); };
    case CallKind::kReduceScatter:
      return [=, &comm] { comm.reduce_scatter(in, out, op, options).wait(); };
    case CallKind::kAllGather:
      return [=, &comm] { comm.all_gather(in, out, options).wait(); };
    case CallKind::kBroadcast:
      return [=, &comm] { comm.broadcast(out, root, options).wait(); };
    case CallKind::kReduce:
      return [=, &comm] { comm.reduce(in, out, op, root, options).wait(); };
    case CallKind::kGather:
      return [=, &comm] { comm.gather(in, out, root, options).wait(); };
    case CallKind::kScatter:
      return [=, &comm] { comm.scatter(in, out, root, options).wait(); };
    case CallKind::kAllToAll:
      return [=, &comm] { comm.all_to_all(in, out, options).wait(); };
    case CallKind::kAllGatherV:
    case CallKind::kAllToAllV:
      return prepare_varied(cell, in, out, options);
    case CallKind::kSendRecv:
      return prepare_ring(in, out);
    case CallKind::kBarrier:
      return [=, &comm] { comm.barrier(options).wait(); };
  }
  return {};
}

// The calls for blocks of different sizes, with blocks that are alike.
Subject::Call MotleySubject::prepare_varied(const Cell& cell, ConstView in, View out,
                                            const CallOptions& options) {
  Communicator& comm = comm_;
  const std::vector<std::size_t> counts(static_cast<std::size_t>(size()),
                                        block_count(cell, size()));
  if (cell.kind == CallKind::kAllGatherV) {
    return [=, &comm] { comm.all_gather_v(in, {out, counts}, options).wait(); };
  }
  return [=, &comm] { comm.all_to_all_v({in, counts}, {out, counts}, options).wait(); };
}

// Every rank sends to the next and receives from the one before, at once.
Subject::Call MotleySubject::prepare_ring(ConstView in, View out) {
  if (size() == 1) return {};  // nobody sends to itself
  Communicator& comm = comm_;
  return [=, &comm, next = (rank() + 1) % size(), last = (rank() + size() - 1) % size()] {
    Request receive = comm.recv(out, last);
    comm.send(in, next).wait();
    receive.wait();
  };
}

// What the communicator chooses by: all sizes up to a power of two are alike to it.
Choice MotleySubject::choice(const Cell& cell, std::size_t bytes) const {
  const bool on_device = cell.buffers == Buffers::kDevice;
  Choice choice{.kind = cell.kind,
                .bytes = priced_bytes(cell.kind, bytes, size()),
                .root = cell.root,
                .segment_bytes = comm_.options().segment_bytes,
                .memory = on_device ? Memory::kDevice : Memory::kHost};
  const Team* const team = comm_.engine().transport().team_of(comm_.world());
  const bool whole = cell.algorithm == kAuto && !on_device && team != nullptr;
  if (whole && team->runs(cell.kind, choice.bytes, size()))
    choice.whole = team->price(cell.kind, choice.bytes, topology());
  return choice;
}

const Topology& MotleySubject::topology() const { return comm_.topology(); }

std::string MotleySubject::algorithm(const Cell& cell) const {
  if (cell.algorithm != kAuto) return cell.algorithm;
  const int chosen = choose(choice(cell, std::bit_ceil(cell.bytes())), topology());
  if (chosen == kWhole) return kWholeName;
  return algorithms_of(cell.kind)[static_cast<std::size_t>(chosen)].name;
}

std::optional<double> MotleySubject::price(const Cell& cell) const {
  const std::string wanted = algorithm(cell);
  for (const Price& price : prices(choice(cell, cell.bytes()), topology())) {
    if (wanted == price.family) return to_seconds(price.time);
  }
  return std::nullopt;
}

std::string MotleySubject::explanation(const Cell& cell) const {
  return explain(choice(cell, std::bit_ceil(cell.bytes())), topology());
}

}  // namespace motley::perf
