// The stand-in for NCCL finds what it is there to find: each fault is planted once, among ranks
// that one thread plays.
#include "test/support/nccl_stand_in.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <thread>

#include "comm/device.h"
#include "test/support/device_emulated.h"

namespace motley::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kCount = 8;

class NcclStandIn : public testing::Test {
 protected:
  NcclStandIn() {
    reset_nccl_stand_in();
    emulate({.count = 2});
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (int rank = 0; rank < 2; ++rank) {
      const UseDevice use(rank);
      streams_.emplace_back();
      buffers_.emplace_back(kCount * sizeof(float));
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      EXPECT_EQ(ncclCommInitRankConfig(&comms_[rank], 2, id, rank, &config), ncclInProgress);
    }
    settle();
  }
  ~NcclStandIn() override {
    for (ncclComm_t comm : comms_) {
      if (comm != nullptr) (void)ncclCommAbort(comm);
    }
  }

  cudaStream_t stream(int rank) {
    return static_cast<cudaStream_t>(StreamRef(streams_[static_cast<std::size_t>(rank)]).handle);
  }
  float* data(int rank) {
    const View view = buffers_[static_cast<std::size_t>(rank)].view(kCount, DType::kFloat32);
    return reinterpret_cast<float*>(view.data);
  }
  ncclResult_t all_reduce(int rank, std::size_t count, ncclDataType_t type = ncclFloat32) {
    return ncclAllReduce(data(rank), data(rank), count, type, ncclSum, comms_[rank], stream(rank));
  }
  // What has been asked for enters the streams.
  void settle() {
    for (ncclComm_t comm : comms_) {
      ncclResult_t error = ncclInProgress;
      for (int looks = 0; error == ncclInProgress && looks < 10; ++looks)
        EXPECT_EQ(ncclCommGetAsyncError(comm, &error), ncclSuccess);
      EXPECT_EQ(error, ncclSuccess);
    }
  }
  // Whether both streams come to their ends, if driven for long.
  bool ends() {
    Event first, second;
    first.record(streams_[0]);
    second.record(streams_[1]);
    bool done = false;
    for (int looks = 0; !done && looks < 1000; ++looks) done = first.done() && second.done();
    return done;
  }

  ncclComm_t comms_[2] = {};
  std::vector<Stream> streams_;
  std::vector<DeviceBuffer> buffers_;
};

TEST_F(NcclStandIn, MovesBytesWhereCallsMatch) {
  const std::vector<float> both[] = {std::vector<float>(kCount, 1), std::vector<float>(kCount, 2)};
  for (int rank = 0; rank < 2; ++rank) {
    motley::copy(
        View(reinterpret_cast<std::byte*>(data(rank)), kCount, DType::kFloat32, Memory::kDevice),
        both[rank], streams_[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(all_reduce(rank, kCount), ncclInProgress);
  }
  settle();
  EXPECT_TRUE(ends());
  EXPECT_EQ(data(0)[7], 3);
  EXPECT_EQ(data(1)[0], 3);
  EXPECT_THAT(nccl_faults(), IsEmpty());
}

TEST_F(NcclStandIn, HangsWhereCountsDiffer) {
  (void)all_reduce(0, kCount);
  (void)all_reduce(1, kCount - 1);
  settle();
  EXPECT_FALSE(ends());
  EXPECT_THAT(nccl_faults(), ElementsAre(HasSubstr("mismatch: all_reduce of 8")));
}

TEST_F(NcclStandIn, HangsWhereTypesDiffer) {
  (void)all_reduce(0, kCount);
  (void)all_reduce(1, kCount, ncclInt32);
  settle();
  EXPECT_FALSE(ends());
  EXPECT_THAT(nccl_faults(), ElementsAre(HasSubstr("int32")));
}

TEST_F(NcclStandIn, HangsWhereMessagesDiffer) {
  (void)ncclSend(data(0), 4, ncclInt8, 1, comms_[0], stream(0));
  (void)ncclRecv(data(1), 3, ncclInt8, 0, comms_[1], stream(1));
  settle();
  EXPECT_FALSE(ends());
  EXPECT_THAT(nccl_faults(), ElementsAre(HasSubstr("recv of 3")));
}

// Each sends first, in a group of its own.
TEST_F(NcclStandIn, SeesRanksThatWaitForEachOther) {
  for (int rank = 0; rank < 2; ++rank)
    (void)ncclSend(data(rank), 4, ncclInt8, 1 - rank, comms_[rank], stream(rank));
  settle();
  for (int rank = 0; rank < 2; ++rank)
    (void)ncclRecv(data(rank), 4, ncclInt8, 1 - rank, comms_[rank], stream(rank));
  settle();
  EXPECT_FALSE(ends());
  EXPECT_THAT(nccl_faults(), ElementsAre(HasSubstr("deadlock: rank 0 in send")));
}

TEST_F(NcclStandIn, LetsOneGroupExchange) {
  for (int rank = 0; rank < 2; ++rank) {
    (void)ncclGroupStart();
    (void)ncclSend(data(rank), 4, ncclInt8, 1 - rank, comms_[rank], stream(rank));
    (void)ncclRecv(data(rank) + 4, 4, ncclInt8, 1 - rank, comms_[rank], stream(rank));
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  }
  settle();
  EXPECT_TRUE(ends());
  EXPECT_THAT(nccl_faults(), IsEmpty());
}

TEST_F(NcclStandIn, WaitsForALateRankWithoutAFault) {
  (void)all_reduce(0, kCount);
  settle();
  EXPECT_FALSE(ends());
  EXPECT_THAT(nccl_faults(), IsEmpty());
  (void)all_reduce(1, kCount);
  settle();
  EXPECT_TRUE(ends());
}

TEST_F(NcclStandIn, SeesUseAfterTheEnd) {
  EXPECT_EQ(ncclCommAbort(comms_[0]), ncclSuccess);
  EXPECT_NE(all_reduce(0, kCount), ncclSuccess);
  EXPECT_NE(ncclCommAbort(comms_[0]), ncclSuccess);
  ncclResult_t error;
  (void)ncclCommGetAsyncError(comms_[0], &error);
  EXPECT_EQ(nccl_faults().size(), 3u);
  EXPECT_THAT(nccl_faults(), testing::Each(HasSubstr("end")));
  comms_[0] = nullptr;
  EXPECT_EQ(nccl_use().alive, 1);
}

TEST_F(NcclStandIn, SeesCallsOfACommunicatorThatHasNotSettled) {
  (void)all_reduce(0, kCount);
  (void)all_reduce(0, kCount);
  EXPECT_THAT(nccl_faults(), ElementsAre(HasSubstr("had settled")));
}

TEST_F(NcclStandIn, PutsNothingIntoAStreamBeforeItHasSettled) {
  (void)all_reduce(0, kCount);
  (void)all_reduce(1, kCount);
  EXPECT_TRUE(ends());  // the streams are empty
  EXPECT_EQ(nccl_use().launches, 0);
}

TEST_F(NcclStandIn, SeesTwoThreadsInOneCommunicator) {
  (void)ncclGroupStart();
  (void)all_reduce(0, kCount);
  std::thread([&] { EXPECT_NE(all_reduce(0, kCount), ncclSuccess); }).join();
  std::thread([&] { EXPECT_NE(ncclGroupEnd(), ncclSuccess); }).join();
  (void)ncclGroupEnd();
  EXPECT_THAT(nccl_faults(), ElementsAre(HasSubstr("another thread"), HasSubstr("began none")));
}

TEST_F(NcclStandIn, SeesOperationsLeftBehindAndADestructionTooEarly) {
  float weight = 2;
  ncclRedOp_t op;
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &weight, ncclFloat32, ncclScalarHostImmediate, comms_[0]),
            ncclSuccess);
  EXPECT_EQ(nccl_use().operations, 1);
  EXPECT_NE(ncclCommDestroy(comms_[0]), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comms_[0]), ncclInProgress);
  EXPECT_EQ(ncclCommDestroy(comms_[0]), ncclSuccess);
  comms_[0] = nullptr;
  EXPECT_THAT(nccl_faults(), ElementsAre(HasSubstr("before it was finalized"),
                                         HasSubstr("operations of its own")));
}

TEST_F(NcclStandIn, ReportsAnErrorOnTheRankWhereItWasAskedTo) {
  break_nccl_launch(1, 0);
  (void)all_reduce(0, kCount);
  (void)all_reduce(1, kCount);
  settle();
  EXPECT_FALSE(ends());
  ncclResult_t here, there;
  (void)ncclCommGetAsyncError(comms_[0], &here);
  (void)ncclCommGetAsyncError(comms_[1], &there);
  EXPECT_EQ(here, ncclSuccess);
  EXPECT_EQ(there, ncclRemoteError);
}

}  // namespace
}  // namespace motley::test
