#include "runtime/lines.h"

#include <cstdint>

namespace motley::runtime {
namespace {

constexpr std::uint64_t kLines = std::uint64_t{1} << 59;  // ids of groups

Group pair_of(int from, int to, std::uint32_t number) {
  const GroupTag tag{
      .id = kLines | static_cast<std::uint64_t>(from) << 28 | static_cast<std::uint64_t>(to),
      .epoch = number};
  if (from == to) return Group({from}, tag);  // not used
  return Group({from, to}, tag);
}

}  // namespace

Lines::Lines(Communicator& comm) : comm_(comm) {
  const std::uint32_t number = comm.world().next_call();
  for (int rank = 0; rank < comm.size(); ++rank) {
    to_.push_back(pair_of(comm.rank(), rank, number));
    from_.push_back(pair_of(rank, comm.rank(), number));
  }
}

Request Lines::send(ConstView data, int to, Duration timeout) const {
  // A broadcast only reads what its root passes.
  const View read_only(const_cast<std::byte*>(data.data), data.count, data.dtype, data.memory);
  return comm_.broadcast(
      read_only, comm_.rank(),
      {.group = &to_[static_cast<std::size_t>(to)], .timeout = timeout, .algorithm = "tree"});
}

Request Lines::recv(View data, int from, Duration timeout) const {
  return comm_.broadcast(
      data, from,
      {.group = &from_[static_cast<std::size_t>(from)], .timeout = timeout, .algorithm = "tree"});
}

}  // namespace motley::runtime
