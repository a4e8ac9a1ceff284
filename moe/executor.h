// moe/executor.h: runs a program for real, and tells when each operation began and ended.
//
//   Executor executor;
//   executor.bind(OpKind::kEncode, [&](const Op& op, int) { encode(x, op.chunk); });
//   executor.bind_call(OpKind::kDispatch, [&](const Op& op, int) { return comm.all_to_all_v(…); });
//   const Timeline timeline = executor.run(program);
//
// By the rules of program.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "comm/clock.h"
#include "comm/request.h"
#include "moe/program.h"
#include "moe/timeline.h"

namespace motley::moe {

// What runs the lanes of a program.
enum class LaneThreads : std::uint8_t {
  // The calling thread all of them, in serial_order(). Calls are posted in their turn, waited for
  // when something after them starts, and travel in between.
  kPosted,
  // The same, but each operation ends before the next starts: to measure them.
  kOneByOne,
  // The calling thread the compute lane; every other lane that a program uses a thread of the
  // executor, which sleeps between programs. A program in which nothing can overlap runs in the
  // calling thread alone. What is bound to operations of different lanes runs at the same time: it
  // must not share what it changes, but where one is after the other.
  kEach,
};

class Executor {
 public:
  // Does the operation, which is at position `index` of the program. It waits for no other
  // operation, and has deadlines of its own for whatever else it waits for.
  using Body = std::function<void(const Op& op, int index)>;
  // Starts what others take part in; the operation ends when that is complete. Its lane must be one
  // that talks(); there calls are started and waited for in the lane's order.
  using Call = std::function<Request(const Op& op, int index)>;

  // `rank` is that of the timelines.
  explicit Executor(Clock& clock = Clock::real(), int rank = 0,
                    LaneThreads threads = LaneThreads::kEach);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  // What operations of a kind are from now on. Not while a program runs.
  void bind(OpKind kind, Body body);
  void bind_call(OpKind kind, Call call);

  // Returns when all operations have ended. One thread at a time.
  //   errors  kInvalid as check() says, and naming an operation of a kind that is not bound, before
  //           anything has run; else what the first operation that failed threw, once those that
  //           ran at the time have ended or, where they were posted, are cancelled. No more are
  //           started then
  Timeline run(const Program& program);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley::moe
