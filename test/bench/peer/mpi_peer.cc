// The collectives of an MPI, measured as motley-perf measures ours. Built once against each MPI:
//
//   mpirun.openmpi -np 2 openmpi_peer -b 4 -e 16M --json FILE
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <string>
#include <vector>

#include "comm/error.h"
#include "test/bench/peer/peer_main.h"

namespace motley::perf {
namespace {

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return MPI_DOUBLE;
    case DType::kFloat32:
      return MPI_FLOAT;
    case DType::kInt8:
      return MPI_INT8_T;
    case DType::kInt16:
      return MPI_INT16_T;
    case DType::kInt32:
      return MPI_INT32_T;
    case DType::kInt64:
      return MPI_INT64_T;
    case DType::kFloat16:  // no arithmetic of MPI's knows the 16-bit types
    case DType::kBFloat16:
      return MPI_DATATYPE_NULL;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return MPI_SUM;
    case ReduceOp::kProduct:
      return MPI_PROD;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kAverage:
    case ReduceOp::kWeightedSum:
      return MPI_OP_NULL;
  }
  return MPI_OP_NULL;
}

void check(int status) {
  if (status != MPI_SUCCESS) {
    throw Error(ErrorCode::kIo, fmt::format("mpi: a call returned {}.", status));
  }
}

struct BlockList {
  std::vector<int> counts;
  std::vector<int> begins;
};

BlockList equal_blocks(int count, int blocks) {
  BlockList list;
  for (int i = 0; i < blocks; ++i) {
    list.counts.push_back(count);
    list.begins.push_back(i * count);
  }
  return list;
}

class MpiSubject final : public Subject {
 public:
  MpiSubject() {
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  }

  std::string library() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    check(MPI_Get_library_version(text, &length));
    std::string line(text, static_cast<std::size_t>(length));
    line.resize(std::min(line.find_first_of(",\n"), line.size()));
    std::replace(line.begin(), line.end(), '\t', ' ');
    return line;
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override { check(MPI_Barrier(MPI_COMM_WORLD)); }
  void greatest(std::span<double> values) override {
    check(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE,
                        MPI_MAX, MPI_COMM_WORLD));
  }
  std::unique_ptr<Storage> allocate(std::size_t bytes, Buffers buffers) override {
    return buffers == Buffers::kPrivate ? private_storage(bytes) : nullptr;
  }
  Call prepare(const Cell& cell, ConstView in, View out) override {
    const MPI_Datatype type = type_of(cell.dtype);
    const MPI_Op op = op_of(cell.op);
    if (type == MPI_DATATYPE_NULL || cell.count > INT_MAX) return {};
    if (reduces(cell.kind) && op == MPI_OP_NULL) return {};
    const void* from = cell.place == Place::kIn ? MPI_IN_PLACE : in.data;
    const int count = static_cast<int>(cell.count);
    const int block = static_cast<int>(block_count(cell, size_));
    switch (cell.kind) {
      case CallKind::kAllReduce:
        return [=] { check(MPI_Allreduce(from, out.data, count, type, op, MPI_COMM_WORLD)); };
      case CallKind::kReduceScatter:
        return [=] {
          check(MPI_Reduce_scatter_block(in.data, out.data, block, type, op, MPI_COMM_WORLD));
        };
      case CallKind::kAllGather:
        return
            [=] { check(MPI_Allgather(from, block, type, out.data, block, type, MPI_COMM_WORLD)); };
      case CallKind::kAllToAll:
        return
            [=] { check(MPI_Alltoall(from, block, type, out.data, block, type, MPI_COMM_WORLD)); };
      case CallKind::kReduce:
        return [=, root = cell.root] {
          check(MPI_Reduce(in.data, out.data, count, type, op, root, MPI_COMM_WORLD));
        };
      case CallKind::kGather:
        return [=, root = cell.root] {
          check(MPI_Gather(in.data, block, type, out.data, block, type, root, MPI_COMM_WORLD));
        };
      case CallKind::kScatter:
        return [=, root = cell.root] {
          check(MPI_Scatter(in.data, block, type, out.data, block, type, root, MPI_COMM_WORLD));
        };
      case CallKind::kBroadcast:
        return [=, root = cell.root] {
          check(MPI_Bcast(out.data, count, type, root, MPI_COMM_WORLD));
        };
      case CallKind::kBarrier:
        return [] { check(MPI_Barrier(MPI_COMM_WORLD)); };
      case CallKind::kAllGatherV:
        return [=, blocks = equal_blocks(block, size_)] {
          check(MPI_Allgatherv(from, block, type, out.data, blocks.counts.data(),
                               blocks.begins.data(), type, MPI_COMM_WORLD));
        };
      case CallKind::kAllToAllV:
        return [=, blocks = equal_blocks(block, size_)] {
          check(MPI_Alltoallv(from, blocks.counts.data(), blocks.begins.data(), type, out.data,
                              blocks.counts.data(), blocks.begins.data(), type, MPI_COMM_WORLD));
        };
      case CallKind::kSendRecv:
        return [=, to = (rank_ + 1) % size_, source = (rank_ + size_ - 1) % size_] {
          check(MPI_Sendrecv(in.data, count, type, to, 0, out.data, count, type, source, 0,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        };
    }
    return {};
  }
  std::string algorithm(const Cell&) const override { return "-"; }

 private:
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace
}  // namespace motley::perf

int main(int argc, char** argv) {
  motley::perf::parse_command_line(argc, argv, "mpi_peer measures the collectives of an MPI.");
  MPI_Init(&argc, &argv);
  int code = 0;
  {
    motley::perf::MpiSubject subject;
    code = motley::perf::run_peer(subject, "mpi_peer", "-");
  }
  MPI_Finalize();
  return code;
}
