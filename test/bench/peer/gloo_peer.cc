// The collectives of Gloo over TCP, measured as motley-perf measures ours. Each rank is started by
// itself:
//
//   gloo_peer --rank 0 --size 2 --store FOLDER -b 4 -e 16M --json FILE
#include <gflags/gflags.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <type_traits>

#include "comm/error.h"
#include "comm/kernel/ops.h"
#include "test/bench/peer/peer_main.h"

DEFINE_int32(rank, 0, "this process, in [0, size)");
DEFINE_int32(size, 1, "number of processes");
DEFINE_string(store, "", "empty folder through which the processes find each other");

namespace motley::perf {
namespace {

// The function of Gloo's that reduces T by op; null if it has none.
template <class T>
gloo::AllreduceOptions::Func function_of(ReduceOp op) {
  using Func = void (*)(void*, const void*, const void*, std::size_t);
  switch (op) {
    case ReduceOp::kSum:
      return static_cast<Func>(&gloo::sum<T>);
    case ReduceOp::kProduct:
      return static_cast<Func>(&gloo::product<T>);
    case ReduceOp::kMin:
      return static_cast<Func>(&gloo::min<T>);
    case ReduceOp::kMax:
      return static_cast<Func>(&gloo::max<T>);
    case ReduceOp::kAverage:
    case ReduceOp::kWeightedSum:
      return nullptr;
  }
  return nullptr;
}

template <class T>
T* pointer(ConstView view) {  // Gloo takes inputs as pointers to non-const
  return const_cast<T*>(view.as<const T>().data());
}

class GlooSubject final : public Subject {
 public:
  GlooSubject(int rank, int size, const std::string& folder)
      : store_(folder), context_(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    gloo::transport::tcp::attr address;
    address.hostname = "127.0.0.1";
    context_->setTimeout(std::chrono::seconds(60));
    auto device = gloo::transport::tcp::CreateDevice(address);
    context_->connectFullMesh(store_, device);
  }

  std::string library() const override {
    return fmt::format("Gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
  }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  void greatest(std::span<double> values) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values.data(), values.size());
    options.setReduceFunction(function_of<double>(ReduceOp::kMax));
    gloo::allreduce(options);
  }
  std::unique_ptr<Storage> allocate(std::size_t bytes, Buffers buffers) override {
    return buffers == Buffers::kPrivate ? private_storage(bytes) : nullptr;
  }
  Call prepare(const Cell& cell, ConstView in, View out) override {
    if (cell.kind == CallKind::kBarrier) return [this] { barrier(); };
    Call call;
    dispatch(cell.dtype, [&]<class T>() {
      if constexpr (std::is_arithmetic_v<T>) call = prepare_typed<T>(cell, in, out);
    });
    return call;
  }
  std::string algorithm(const Cell&) const override { return "-"; }

 private:
  template <class T>
  Call prepare_typed(const Cell& cell, ConstView in, View out) {
    T* const from = pointer<T>(in);
    T* const to = pointer<T>(out);
    if (cell.kind == CallKind::kAllReduce) {
      const auto function = function_of<T>(cell.op);
      if (!function) return {};
      return [=, this] {
        gloo::AllreduceOptions options(context_);
        if (from != to) options.setInput(from, cell.count);
        options.setOutput(to, cell.count);
        options.setReduceFunction(function);
        gloo::allreduce(options);
      };
    }
    if (cell.kind == CallKind::kAllToAll) {
      // Gloo has no such call in place: what its users would write is a copy first.
      const bool in_place = cell.place == Place::kIn;
      if (in_place) spare_ = private_storage(std::max(cell.bytes(), spare_bytes()));
      T* const sent = in_place ? reinterpret_cast<T*>(spare_->bytes().data()) : from;
      return [=, this] {
        if (in_place) std::copy_n(from, cell.count, sent);
        gloo::AlltoallOptions options(context_);
        options.setInput(sent, cell.count);
        options.setOutput(to, cell.count);
        gloo::alltoall(options);
      };
    }
    if (cell.kind == CallKind::kBroadcast) {
      return [=, this] {
        gloo::BroadcastOptions options(context_);
        options.setOutput(to, cell.count);
        options.setRoot(cell.root);
        gloo::broadcast(options);
      };
    }
    return {};
  }

  std::size_t spare_bytes() { return spare_ ? spare_->bytes().size() : 0; }

  std::unique_ptr<Storage> spare_;
  gloo::rendezvous::FileStore store_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

}  // namespace
}  // namespace motley::perf

int main(int argc, char** argv) {
  motley::perf::parse_command_line(argc, argv, "gloo_peer measures the collectives of Gloo.");
  motley::perf::GlooSubject subject(FLAGS_rank, FLAGS_size, FLAGS_store);
  return motley::perf::run_peer(subject, "gloo_peer", "tcp");
}
