#include "comm/transport/nccl_part.h"

#include <algorithm>
#include <span>

#include "comm/kernel/reduce.h"
#include "comm/transport/nccl_reduction.h"

namespace motley {
namespace {

cudaStream_t raw(StreamRef stream) noexcept { return static_cast<cudaStream_t>(stream.handle); }

// Types that NCCL adds up; there is no int16.
std::optional<ncclDataType_t> nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kInt8:
      return ncclInt8;
    case DType::kInt16:
      return std::nullopt;
    case DType::kInt32:
      return ncclInt32;
    case DType::kInt64:
      return ncclInt64;
  }
  return std::nullopt;
}

// Whether NCCL's collectives give what dtype.h says. They do not promise NaN in minima and maxima,
// and average 16-bit floats in 16 bits.
bool nccl_reduces(const TeamCall& call) {
  const Fingerprint& f = call.fingerprint;
  if (call.deterministic || !nccl_type(f.dtype)) return false;
  const bool is_float = is_floating(f.dtype);
  if (f.op == ReduceOp::kMin || f.op == ReduceOp::kMax) return !is_float;
  if (f.op == ReduceOp::kAverage || f.op == ReduceOp::kWeightedSum)
    return !is_float || size_bytes(f.dtype) > 2;
  return true;
}

// An operation of NCCL; of a weighted sum, one that is made for it.
class Operation {
 public:
  Operation(NcclCommunicator& comm, const TeamCall& call) : comm_(comm.handle()) {
    switch (call.fingerprint.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:  // divide_on_device() follows: ncclAvg multiplies by 1/p first
        op_ = ncclSum;
        return;
      case ReduceOp::kProduct:
        op_ = ncclProd;
        return;
      case ReduceOp::kMin:
        op_ = ncclMin;
        return;
      case ReduceOp::kMax:
        op_ = ncclMax;
        return;
      case ReduceOp::kWeightedSum:
        break;
    }
    double weight = call.weight;
    auto short_weight = static_cast<float>(weight);
    const bool is_double = call.fingerprint.dtype == DType::kFloat64;
    void* const scalar = is_double ? static_cast<void*>(&weight) : &short_weight;
    comm.check(ncclRedOpCreatePreMulSum(&op_, scalar, is_double ? ncclFloat64 : ncclFloat32,
                                        ncclScalarHostImmediate, comm_),
               "making a weighted sum");
    made_ = true;
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() {
    if (made_) (void)ncclRedOpDestroy(op_, comm_);
  }

  ncclRedOp_t get() const noexcept { return op_; }

 private:
  ncclComm_t comm_;
  ncclRedOp_t op_{};
  bool made_ = false;
};

// [first, first + counts[i]) of each block i of a buffer, one after another.
std::vector<std::size_t> starts_of(std::span<const std::size_t> counts) {
  std::vector<std::size_t> starts;
  std::size_t next = 0;
  for (const std::size_t count : counts) {
    starts.push_back(next);
    next += count;
  }
  return starts;
}

}  // namespace

View NcclScratch::view(std::size_t first, std::size_t count, DType dtype) {
  if (!memory_) memory_.emplace(size_bytes_);
  return {memory_->view(size_bytes_, DType::kInt8).data + first, count, dtype, Memory::kDevice};
}

void NcclPart::together(const std::function<void()>& post) {
  comm_.together(post);
  comm_.settle();
}

void NcclPart::each_other(const std::function<void(int member)>& action) const {
  for (int i = 1; i < members(); ++i) action((place_ + i) % members());
}

void NcclPart::send(int member, ConstView data) {
  if (data.count == 0) return;
  comm_.check(
      ncclSend(data.data, data.size_bytes(), ncclInt8, comm_.place_of(call_.group->rank_at(member)),
               comm_.handle(), raw(call_.stream)),
      "sending");
}

void NcclPart::recv(int member, View data) {
  if (data.count == 0) return;
  comm_.check(
      ncclRecv(data.data, data.size_bytes(), ncclInt8, comm_.place_of(call_.group->rank_at(member)),
               comm_.handle(), raw(call_.stream)),
      "receiving");
}

void NcclPart::copy_within(View out, ConstView in) {
  if (out.data != in.data) copy(out, in, call_.stream);
}

template <class View>
View NcclPart::block(const View& all, int member) const noexcept {
  const std::size_t n = all.count / static_cast<std::size_t>(members());
  return all.slice(static_cast<std::size_t>(member) * n, n);
}

void NcclPart::run() {
  const bool own = comm_.group().ranks() == call_.group->ranks();
  if (!own || !run_as_collective()) run_as_messages();
}

bool NcclPart::run_as_collective() {
  const CallKind kind = call_.fingerprint.kind;
  if (reduces(kind)) {
    if (!nccl_reduces(call_)) return false;
    reduce_by_nccl();
    return true;
  }
  const ConstView in = call_.in;
  const View out = call_.out;
  if (kind == CallKind::kAllGather) {
    together([&] {
      comm_.check(ncclAllGather(in.data, out.data, in.size_bytes(), ncclInt8, comm_.handle(),
                                raw(call_.stream)),
                  "starting an all-gather");
    });
    return true;
  }
  if (kind == CallKind::kBroadcast) {
    together([&] {
      comm_.check(ncclBroadcast(in.data, out.data, out.size_bytes(), ncclInt8, root(),
                                comm_.handle(), raw(call_.stream)),
                  "starting a broadcast");
    });
    return true;
  }
  return false;
}

void NcclPart::reduce_by_nccl() {
  const ConstView in = call_.in;
  const View out = call_.out;
  const ncclDataType_t type = *nccl_type(call_.fingerprint.dtype);
  const Operation op(comm_, call_);
  together([&] {
    switch (call_.fingerprint.kind) {
      case CallKind::kAllReduce:
        return comm_.check(ncclAllReduce(in.data, out.data, in.count, type, op.get(),
                                         comm_.handle(), raw(call_.stream)),
                           "starting an all-reduce");
      case CallKind::kReduceScatter:
        return comm_.check(ncclReduceScatter(in.data, out.data, out.count, type, op.get(),
                                             comm_.handle(), raw(call_.stream)),
                           "starting a reduce-scatter");
      default:
        return comm_.check(ncclReduce(in.data, out.data, in.count, type, op.get(), root(),
                                      comm_.handle(), raw(call_.stream)),
                           "starting a reduce");
    }
  });
  if (call_.fingerprint.op == ReduceOp::kAverage) divide_on_device(out, members(), call_.stream);
}

void NcclPart::run_as_messages() {
  switch (call_.fingerprint.kind) {
    case CallKind::kAllReduce:
    case CallKind::kReduce:
    case CallKind::kReduceScatter:
      return NcclReduction(*this).run();
    case CallKind::kBroadcast:
      return broadcast();
    case CallKind::kAllGather:
    case CallKind::kAllGatherV:
      return gather_all();
    case CallKind::kGather:
      return gather();
    case CallKind::kScatter:
      return scatter();
    case CallKind::kAllToAll:
    case CallKind::kAllToAllV:
      return exchange_all();
    case CallKind::kSendRecv:
    case CallKind::kBarrier:
      return;  // Nccl::runs() says no
  }
}

// The root deals out slices, which their receivers pass on: it sends 2n, as a ring would.
void NcclPart::broadcast() {
  const View data = call_.out;
  const auto p = static_cast<std::size_t>(members());
  const std::size_t each = (data.count + p - 1) / p;
  const auto slice = [&](int member) {
    const std::size_t first = std::min(data.count, static_cast<std::size_t>(member) * each);
    return data.slice(first, std::min(each, data.count - first));
  };
  together([&] {
    if (place_ != root()) return recv(root(), slice(place_));
    each_other([&](int member) { send(member, slice(member)); });
  });
  together([&] {
    each_other([&](int member) {
      if (member != root()) send(member, slice(place_));
      if (place_ != root()) recv(member, slice(member));
    });
  });
}

void NcclPart::gather_all() {
  const bool even = call_.fingerprint.kind == CallKind::kAllGather;
  const std::vector<std::size_t> starts = starts_of(call_.out_counts);
  const auto part = [&](int member) {
    if (even) return block(call_.out, member);
    const auto i = static_cast<std::size_t>(member);
    return call_.out.slice(starts[i], call_.out_counts[i]);
  };
  copy_within(part(place_), call_.in);
  together([&] {
    each_other([&](int member) {
      send(member, call_.in);
      recv(member, part(member));
    });
  });
}

void NcclPart::gather() {
  if (place_ == root()) copy_within(block(call_.out, place_), call_.in);
  together([&] {
    if (place_ != root()) return send(root(), call_.in);
    each_other([&](int member) { recv(member, block(call_.out, member)); });
  });
}

void NcclPart::scatter() {
  if (place_ == root()) copy_within(call_.out, block(call_.in, place_));
  together([&] {
    if (place_ != root()) return recv(root(), call_.out);
    each_other([&](int member) { send(member, block(call_.in, member)); });
  });
}

// In place, a block must have left before that of its receiver comes: it waits in the scratch. So
// that both ends cut alike, all blocks are cut into segments that fit there.
void NcclPart::exchange_all() {
  const bool even = call_.fingerprint.kind == CallKind::kAllToAll;
  const auto p = static_cast<std::size_t>(members());
  const std::vector<std::size_t> same(even ? p : 0, call_.in.count / p);
  const std::span<const std::size_t> in_counts = even ? same : call_.in_counts;
  const std::span<const std::size_t> out_counts = even ? same : call_.out_counts;
  const std::vector<std::size_t> in_starts = starts_of(in_counts);
  const std::vector<std::size_t> out_starts = starts_of(out_counts);
  const DType dtype = call_.out.dtype;
  const std::size_t room = scratch_.size_bytes() / p / 16 * 16;
  const std::size_t segment = room / size_bytes(dtype);
  const auto part = [&](auto view, auto& starts, auto counts, int member, std::size_t first) {
    const auto i = static_cast<std::size_t>(member);
    const std::size_t from = std::min(counts[i], first);
    return view.slice(starts[i] + from, std::min(segment, counts[i] - from));
  };
  const bool in_place = call_.in.data == call_.out.data;
  const std::size_t longest =
      std::max(*std::ranges::max_element(in_counts), *std::ranges::max_element(out_counts));
  for (std::size_t first = 0; first < longest; first += segment) {
    const auto give = [&](int member) {
      return part(call_.in, in_starts, in_counts, member, first);
    };
    const auto take = [&](int member) {
      return part(call_.out, out_starts, out_counts, member, first);
    };
    const auto waiting = [&](int member) {
      return scratch_.view(static_cast<std::size_t>(member) * room, give(member).count, dtype);
    };
    copy_within(take(place_), give(place_));
    if (in_place) each_other([&](int member) { copy_within(waiting(member), give(member)); });
    together([&] {
      each_other([&](int member) {
        send(member, in_place ? ConstView(waiting(member)) : give(member));
        recv(member, take(member));
      });
    });
  }
}

}  // namespace motley
