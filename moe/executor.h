// moe/executor.h: runs a program for real, and tells when each operation began and ended.
//
//   Executor executor;
//   executor.bind(OpKind::kEncode, [&](const Op& op, int) { encode(x, op.chunk); });
//   executor.bind(OpKind::kDispatch, [&](const Op& op, int) { comm.all_to_all_v(…).wait(); });
//   const Timeline timeline = executor.run(program);
//
// By the rules of program.h. The compute lane is the calling thread, every other lane that a
// program uses a thread of the executor, which sleeps between programs; a program in which nothing
// can overlap runs in the calling thread alone. So what is bound to operations of different lanes
// runs at the same time: it must not share what it changes, but where one is after the other.
#pragma once

#include <functional>
#include <memory>

#include "comm/clock.h"
#include "moe/program.h"
#include "moe/timeline.h"

namespace motley::moe {

class Executor {
 public:
  // Does the operation, which is at position `index` of the program. It waits for no other
  // operation, and has deadlines of its own for whatever else it waits for.
  using Body = std::function<void(const Op& op, int index)>;

  // `rank` is that of the timelines.
  explicit Executor(Clock& clock = Clock::real(), int rank = 0);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  // What operations of a kind are from now on. Not while a program runs.
  void bind(OpKind kind, Body body);

  // Returns when all operations have ended. One thread at a time.
  //   errors  kInvalid as check() says, and naming an operation of a kind that is not bound, before
  //           anything has run; else what the first operation that failed threw, once those that
  //           ran at the time have ended. No more are started then
  Timeline run(const Program& program);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley::moe
