#include "test/support/nccl_clique.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "comm/dtype.h"
#include "comm/kernel/ops.h"

namespace motley::test {
namespace {

DType dtype_of_nccl(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return DType::kInt8;
    case ncclInt32:
      return DType::kInt32;
    case ncclInt64:
      return DType::kInt64;
    case ncclFloat16:
      return DType::kFloat16;
    case ncclFloat32:
      return DType::kFloat32;
    case ncclFloat64:
      return DType::kFloat64;
    case ncclBfloat16:
      return DType::kBFloat16;
  }
  return DType::kInt8;
}

std::size_t bytes_of(const NcclOperation& operation) {
  return operation.count * size_bytes(dtype_of_nccl(operation.type));
}

std::string text_of(const NcclOperation& operation) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "reduce", "all_gather",
                                    "broadcast",  "send",           "recv"};
  return fmt::format("{} of {} {}, op {}, peer {}", kNames[operation.kind], operation.count,
                     name(dtype_of_nccl(operation.type)), static_cast<int>(operation.op),
                     operation.peer);
}

bool match(const NcclOperation& a, const NcclOperation& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.op == b.op &&
         a.peer == b.peer;
}

template <class T>
T combined(T a, T b, ncclRedOp_t op) {
  if (op == ncclProd) return Product{}(a, b);
  if (op != ncclMin && op != ncclMax) return Sum{}(a, b);
  const auto x = static_cast<Comparable<T>>(a), y = static_cast<Comparable<T>>(b);
  if (x != x) return b;
  if (y != y) return a;
  return (op == ncclMin) == (x < y) ? a : b;
}

// Element i over all ranks, begun with a rank that depends on i: NCCL promises no order.
template <class T>
T reduced(const std::vector<NcclOperation*>& operations, std::size_t i) {
  const auto term = [&](std::size_t rank) {
    const NcclOperation& operation = *operations[rank];
    T x;
    std::memcpy(&x, operation.in + i * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
      return operation.weight ? static_cast<T>(static_cast<T>(*operation.weight) * x) : x;
    return x;
  };
  const std::size_t p = operations.size();
  T sum = term(i % p);
  for (std::size_t k = 1; k < p; ++k) sum = combined(sum, term((i + k) % p), operations[0]->op);
  return sum;
}

void reduce_all(const std::vector<NcclOperation*>& operations) {
  const NcclOperation& any = *operations[0];
  const bool scatters = any.kind == NcclOperation::kReduceScatter;
  const std::size_t total = any.count * (scatters ? operations.size() : 1);
  dispatch(dtype_of_nccl(any.type), [&]<class T>() {
    std::vector<T> sums(total);
    for (std::size_t i = 0; i < total; ++i) sums[i] = reduced<T>(operations, i);
    for (std::size_t rank = 0; rank < operations.size(); ++rank) {
      const NcclOperation& to = *operations[rank];
      if (any.kind == NcclOperation::kReduce && static_cast<int>(rank) != any.peer) continue;
      if (any.count == 0) continue;
      std::memcpy(to.out, sums.data() + (scatters ? rank * any.count : 0), any.count * sizeof(T));
    }
  });
}

void move_all(const std::vector<NcclOperation*>& operations) {
  const NcclOperation& any = *operations[0];
  const std::size_t bytes = bytes_of(any);
  if (bytes == 0) return;
  for (NcclOperation* to : operations) {
    if (any.kind == NcclOperation::kBroadcast) {
      std::memmove(to->out, operations[static_cast<std::size_t>(any.peer)]->in, bytes);
      continue;
    }
    for (std::size_t rank = 0; rank < operations.size(); ++rank)
      std::memmove(to->out + rank * bytes, operations[rank]->in, bytes);
  }
}

}  // namespace

bool NcclClique::advance(int rank, NcclLaunch& launch, std::vector<std::string>& faults) {
  Seat& here = seat(rank);
  if (launch.broken) here.current = &launch;
  if (launch.broken || (stuck_ && !launch.done())) return false;
  if (!launch.started) {
    launch.started = true;
    here.current = &launch;
    for (NcclOperation& operation : launch.operations) {
      if (operation.kind == NcclOperation::kSend) {
        here.sends[operation.peer].push_back(&operation);
      } else if (operation.kind == NcclOperation::kRecv) {
        here.recvs[operation.peer].push_back(&operation);
      } else {
        here.collectives.push_back(&operation);
      }
    }
  }
  match_collectives(faults);
  for (int other = 0; other < size(); ++other) {
    match_messages(rank, other, faults);
    match_messages(other, rank, faults);
  }
  if (!launch.done()) {
    look_for_deadlock(faults);
    return false;
  }
  here.current = nullptr;
  return true;
}

void NcclClique::leave(int rank) {
  Seat& here = seat(rank);
  here = Seat();
  here.gone = true;
}

void NcclClique::match_collectives(std::vector<std::string>& faults) {
  while (!stuck_) {
    std::vector<NcclOperation*> operations;
    for (Seat& each : seats_) {
      if (each.collectives.empty()) return;
      operations.push_back(each.collectives.front());
    }
    for (int rank = 1; rank < size(); ++rank) {
      const NcclOperation& other = *operations[static_cast<std::size_t>(rank)];
      if (match(*operations[0], other)) continue;
      stuck_ = true;
      faults.push_back(fmt::format("mismatch: {} on rank 0, {} on rank {}", text_of(*operations[0]),
                                   text_of(other), rank));
      return;
    }
    if (operations[0]->kind <= NcclOperation::kReduce) {
      reduce_all(operations);
    } else {
      move_all(operations);
    }
    for (Seat& each : seats_) {
      each.collectives.front()->done = true;
      each.collectives.pop_front();
    }
  }
}

void NcclClique::match_messages(int from, int to, std::vector<std::string>& faults) {
  auto& sends = seat(from).sends[to];
  auto& recvs = seat(to).recvs[from];
  while (!stuck_ && !sends.empty() && !recvs.empty()) {
    NcclOperation& send = *sends.front();
    NcclOperation& recv = *recvs.front();
    if (send.count != recv.count || send.type != recv.type) {
      stuck_ = true;
      faults.push_back(fmt::format("mismatch: {} on rank {}, {} on rank {}", text_of(send), from,
                                   text_of(recv), to));
      return;
    }
    std::memcpy(recv.out, send.in, bytes_of(send));
    send.done = recv.done = true;
    sends.pop_front();
    recvs.pop_front();
  }
}

// Launches of a communicator run one after another: if all ranks have one that does not go on, none
// ever will.
void NcclClique::look_for_deadlock(std::vector<std::string>& faults) {
  if (stuck_) return;
  for (const Seat& each : seats_) {
    if (each.gone || each.current == nullptr || each.current->broken) return;
    if (each.current->done()) return;
  }
  stuck_ = true;
  std::string text = "deadlock:";
  for (int rank = 0; rank < size(); ++rank) {
    for (const NcclOperation& operation : seat(rank).current->operations) {
      if (operation.done) continue;
      text += fmt::format(" rank {} in {};", rank, text_of(operation));
      break;
    }
  }
  faults.push_back(text);
}

}  // namespace motley::test
