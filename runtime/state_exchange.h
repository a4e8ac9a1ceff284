// runtime/state_exchange.h: what workers do with their states (state.h) over a communicator.
//
//   check_alike(comm, state);                       // once, after all have listed theirs
//   average(comm, state, {.group = &group});        // models, moments and statistics in one go
//   hand_over(comm, state, 0, {.group = &pair});    // worker 3 joins: it takes what worker 0 has
//
// Every call is made by all members of CallOptions::group, or by all workers.
#pragma once

#include "comm/communicator.h"
#include "runtime/state.h"

namespace motley::runtime {

// Throws kMismatch on every member, naming the first item that differs and two ranks with it,
// unless all list the same names, shapes, dtypes and policies in the same order.
void check_alike(Communicator& comm, const State& state, const CallOptions& options = {});

// Items of kAverage become their mean over the group, variances (StateItem::mean) that of all
// values together, those of kMaximum their maximum; others stay.
//   cost    one all_reduce an item, all under way at once
//   errors  what all_reduce throws; items are then undefined, on some members perhaps averaged
void average(Communicator& comm, const State& state, const CallOptions& options = {});

// All members but `from`, a rank of the communicator, take the items of kAverage and kMaximum that
// it has, begin those of kSum with 0 and keep their own of kKeepOwn.
//   errors  kMismatch as check_alike(), and nothing has changed; what broadcast throws
void hand_over(Communicator& comm, const State& state, int from, const CallOptions& options = {});

}  // namespace motley::runtime
