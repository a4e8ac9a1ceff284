// comm/control/message.h: what the ranks and the controller of a job say to each other.
//
// One layout for all types: a fixed header {magic, version, type, length, epoch, seq} and the same
// fields after it, little-endian; a field that a type does not use is empty. Anything else is not
// decoded.
//
// A rank asks on four lanes, the store's, the group's, the report's and the supply's, one request
// at a time on each. It sends the request again, under the same seq, until the answer with that seq
// arrives or its patience ends; the controller keeps its last answer per lane and gives it again.
// So loss, repetition and reordering of messages change nothing, and a request with a higher seq
// gives up what was asked before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/view.h"

namespace motley {

enum class MessageType : std::uint8_t {
  // From a rank, outside of lanes.
  kHello,      // rank, count: size of the job, value: its token, number: the epoch that it comes
               // from, 0 at first, key: "left" if it trains no more,
               // ranks: those that it knows to be dead. Answer: kWelcome or kRefused
  kHeartbeat,  // number: losses that the sender knows of, value: its Progress. Answer: kHeartbeat,
               // and the others as kLost
  kExited,     // rank: a process that is seen to have ended. Answer: kLost or kDeparted. The
               // sender itself: it gives up, value: why. Answer: kFenced
  kCollect,    // key: the dump that the sender makes, ranks: whose calls it still lacks. Answer: a
               // kCalls from each
  kCalls,      // key, rank: who makes that dump, value: the sender's calls; passed on to that rank
  // Between controllers of one job.
  kSuccession,  // count: how many controllers go before the sender, number: the epoch in which it
                // serves, 0 while it stands by, value: the job's token. Answer: the same; kRefused
  // Requests on the store's lane.
  kSet,  // key, value. Answer: kOk
  kGet,  // key. Answer: kValue, once there is one
  kAdd,  // key, number. Answer: kValue, number: the sum
  kBye,  // the process ends in good order. Answer: kOk
  // Requests on the group's lane. All carry tag and ranks of the last group, if its sender has not
  // heard the end of it; kReady, kWithdraw and kLeave say with that that it is done, too.
  kReady,  // number: the step, value: a ReadyNote; with an `eta` in it, the rank will be ready
           // then,
           // and says so again for the same step. Answer: kGroup or kSolo
  kBegin,  // tag, ranks: the group that was the answer to an announced kReady. Now the rank is
           // ready,
           // and averages; number, value: as in kReady. Answer: kOk; or, if that is not its group
           // (any more), kGroup or kSolo as for kReady
  kDone,   // the average is complete here, and taken. Answer, for which nobody waits: kCommit
  kFail,   // rank: the suspect or -1, number: an ErrorCode, value: a ReadyNote; ranks: with the
           // GroupNote's keepers. Answer: kGroup or kSolo
  kWithdraw,  // takes the last kReady back. Answer: kOk
  kLeave,     // this rank will not be ready again. Answer: kOk, or kGroup, and then it asks again
  // Requests on the report's lane.
  kReport,  // tag, number: a call, ranks: who is in it (none: all). Answer: kValue, value: a Report
  // Requests on the supply's lane. key: the supply's name.
  kSupplyOpen,  // number: its count, value: the ranges not counted yet. Answer: kOk
  kSupplyTake,  // value: the ranges that the sender has counted, and those that it holds; number:
                // how many it wants. Answer: kValue, number: how many nobody has counted, value:
                // those that it gets, once there are some or all are counted; and all that nobody
                // has counted (left out if they are in too many pieces)
  kSupplyLeft,  // value: as in kSupplyTake. Answer: kValue, as there, but all that is not counted
  // Request on the memory's lane, after a restart.
  kRecall,  // value: what the sender remembers of the store and of supplies (memory.h). Answer: kOk
  // From the controller. Answers to requests carry their Lane in `count`.
  kWelcome,  // number: the lease in nanoseconds. An epoch above the last one: the controller has
             // been restarted, and knows of no request
  kRefused,  // number: an ErrorCode, value: why
  kOk,
  kValue,     // value, number
  kGroup,     // tag, ranks: average with these, as the GroupNote in value says; the own data is
              // as it was at kReady. If the note names a donor: take that one's last average, or
              // give it, and then ask again
  kCommit,    // tag: all members have the average: it need not be kept
  kSolo,      // go on alone
  kError,     // number: an ErrorCode, value: why the request cannot be answered
  kTell,      // key, rank: who makes that dump and wants the receiver's calls. Answer: kCalls
              // kCalls to who collects: rank: whose they are; value: the calls or, if number says
              // that this rank has none to give (its RankReport::State), why. number < 0: rank
              // makes the same dump already
  kLost,      // rank, value: why, number: index of this loss in the order that all ranks see
  kDeparted,  // rank: it ended in good order
  kDropped,   // tag, rank: that one is not in this group any more; the attempt cannot be completed
  kUnknown,   // the controller does not know the receiver: it is to say hello
  kFenced,    // value: why the receiver counts as dead. It must not touch its group
};

struct Message {
  MessageType type = MessageType::kOk;
  std::uint32_t epoch = 0;  // of the controller; 0 before the welcome
  std::uint64_t seq = 0;    // of the request; the answer carries the same
  std::int32_t rank = -1;
  std::int32_t count = 0;
  std::int64_t number = 0;
  GroupTag tag;
  std::vector<std::int32_t> ranks;
  std::string key;
  std::string value;
  friend bool operator==(const Message&, const Message&) = default;
};

inline constexpr std::size_t kMaxKeyBytes = 1 << 10;
inline constexpr std::size_t kMaxValueBytes = 1 << 20;
inline constexpr std::size_t kMaxGroupRanks = 1 << 16;

enum class Lane : std::uint8_t { kStore, kGroup, kReport, kSupply, kMemory };
inline constexpr std::size_t kLanes = 5;
// The lane of a request; nothing for what is not a request.
std::optional<Lane> lane_of(MessageType type) noexcept;

std::vector<std::byte> encode(const Message& message);
// Nothing if the bytes are not exactly one well-formed message of this version.
std::optional<Message> decode(ConstBytes bytes);
// What to take a message for that decode() does not know: one of another version, whose header is
// the same in all, refuses to have to do with this program. Nothing for anything else.
std::optional<Message> refusal_of(ConstBytes bytes);

}  // namespace motley
