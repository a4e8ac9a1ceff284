// comm/transport/nccl_part.h: one rank's part in a call, put into its stream by NCCL.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "comm/device.h"
#include "comm/transport/nccl_communicator.h"
#include "comm/transport/team.h"
#include "comm/view.h"

namespace motley {

// Device memory that calls use one after another.
class NcclScratch {
 public:
  explicit NcclScratch(std::size_t size_bytes) : size_bytes_(size_bytes) {}
  std::size_t size_bytes() const noexcept { return size_bytes_; }
  // All of it, as `count` elements from byte `first` on.
  View view(std::size_t first, std::size_t count, DType dtype);

 private:
  std::size_t size_bytes_;
  std::optional<DeviceBuffer> memory_;  // from the first use on
};

class NcclPart {
 public:
  // Keeps references.
  NcclPart(NcclCommunicator& comm, const TeamCall& call, int rank, NcclScratch& scratch)
      : comm_(comm), call_(call), place_(call.group->index_of(rank)), scratch_(scratch) {}

  // Puts the whole call into its stream.
  void run();

 private:
  friend class NcclReduction;

  // What NCCL has itself, for groups with a communicator of their own. False if it has not.
  bool run_as_collective();
  void reduce_by_nccl();
  // Sends and receives among the members, and copies within the rank.
  void run_as_messages();
  void broadcast();
  void gather_all();
  void gather();
  void scatter();
  void exchange_all();

  int members() const noexcept { return call_.group->size(); }
  int root() const noexcept { return static_cast<int>(call_.fingerprint.root); }
  // One exchange among members: whatever `post` sends and receives. Done in stream order.
  void together(const std::function<void()>& post);
  // Calls action(member) for all members but this one, each rank beginning with another.
  void each_other(const std::function<void(int member)>& action) const;
  void send(int member, ConstView data);
  void recv(int member, View data);
  void copy_within(View out, ConstView in);
  // Block `member` of a buffer that has one for each.
  template <class View>
  View block(const View& all, int member) const noexcept;

  NcclCommunicator& comm_;
  const TeamCall& call_;
  int place_;  // of this rank among the members
  NcclScratch& scratch_;
};

}  // namespace motley
