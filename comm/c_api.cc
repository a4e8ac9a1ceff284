#include "comm/c_api.h"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/partial_reduce.h"

using motley::DType;
using motley::ErrorCode;
using motley::ReduceOp;

static_assert(MOTLEY_FLOAT64 == static_cast<int>(DType::kFloat64));
static_assert(MOTLEY_BFLOAT16 == static_cast<int>(DType::kBFloat16));
static_assert(MOTLEY_INT64 == static_cast<int>(DType::kInt64));
static_assert(MOTLEY_SUM == static_cast<int>(ReduceOp::kSum));
static_assert(MOTLEY_AVERAGE == static_cast<int>(ReduceOp::kAverage));
static_assert(MOTLEY_INVALID == static_cast<int>(ErrorCode::kInvalid) + 1);
static_assert(MOTLEY_IO == static_cast<int>(ErrorCode::kIo) + 1);

struct motley_comm {
  std::optional<motley::Communicator> joined;
  std::string error;
};

struct motley_reducer {
  motley_reducer(motley_comm* comm_, motley::PartialReducer reducer_)
      : comm(comm_), reducer(std::move(reducer_)) {}
  motley_comm* comm;
  motley::PartialReducer reducer;
};

namespace {

constexpr double kMostSeconds = 1e6;  // as PartialOptions::timeout

// What `body` throws becomes a status, and its text the communicator's.
template <class Body>
motley_status run(motley_comm& comm, Body body) noexcept {
  try {
    body();
    return MOTLEY_OK;
  } catch (const motley::Error& error) {
    comm.error = error.what();
    return static_cast<motley_status>(static_cast<int>(error.code()) + 1);
  } catch (const std::exception& error) {
    comm.error = error.what();
    return MOTLEY_ABORTED;
  }
}

motley::View view_of(void* data, size_t count, motley_dtype dtype) {
  if (dtype < MOTLEY_FLOAT64 || dtype > MOTLEY_INT64 || (data == nullptr && count != 0)) {
    throw motley::Error(ErrorCode::kInvalid,
                        fmt::format("motley: {} elements of dtype {} at {}. Pass memory, and a "
                                    "value of motley_dtype.",
                                    count, static_cast<int>(dtype), data));
  }
  return {static_cast<std::byte*>(data), count, static_cast<DType>(dtype)};
}

void tell(const motley::PartialResult& result, motley_average* average) {
  if (average == nullptr) return;
  average->size = static_cast<std::int32_t>(result.group.size());
  average->waiting_seconds = motley::to_seconds(result.waiting);
  average->averaging_seconds = motley::to_seconds(result.averaging);
  if (average->members == nullptr) return;
  for (std::size_t i = 0; i < result.group.size(); ++i) average->members[i] = result.group[i];
}

motley::Communicator& joined(motley_comm& comm) {
  if (comm.joined) return *comm.joined;
  throw motley::Error(
      ErrorCode::kInvalid,
      "motley: this rank has not joined. Call motley_init() and look at its status.");
}

}  // namespace

motley_status motley_init(motley_comm** comm) {
  *comm = nullptr;
  try {
    *comm = std::make_unique<motley_comm>().release();
  } catch (const std::bad_alloc&) {
    return MOTLEY_ABORTED;
  }
  return run(**comm, [&] {
    (*comm)->joined.emplace(motley::Communicator::join(motley::Options::from_environment()));
  });
}

void motley_finalize(motley_comm* comm) { const std::unique_ptr<motley_comm> owner(comm); }

int motley_rank(const motley_comm* comm) { return comm->joined ? comm->joined->rank() : -1; }
int motley_size(const motley_comm* comm) { return comm->joined ? comm->joined->size() : 0; }
const char* motley_error_text(const motley_comm* comm) { return comm->error.c_str(); }

motley_status motley_all_reduce(motley_comm* comm, void* data, size_t count, motley_dtype dtype,
                                motley_op op) {
  return run(*comm, [&] {
    if (op < MOTLEY_SUM || op > MOTLEY_AVERAGE) {
      throw motley::Error(
          ErrorCode::kInvalid,
          fmt::format("motley_all_reduce: there is no operation {}.", static_cast<int>(op)));
    }
    joined(*comm).all_reduce(view_of(data, count, dtype), static_cast<ReduceOp>(op)).wait();
  });
}

motley_status motley_broadcast(motley_comm* comm, void* data, size_t count, motley_dtype dtype,
                               int root) {
  return run(*comm, [&] { joined(*comm).broadcast(view_of(data, count, dtype), root).wait(); });
}

motley_status motley_barrier(motley_comm* comm) {
  return run(*comm, [&] { joined(*comm).barrier().wait(); });
}

motley_status motley_reducer_create(motley_comm* comm, int group_size, double timeout_seconds,
                                    motley_reducer** reducer) {
  return motley_reducer_create_in_pieces(comm, group_size, timeout_seconds, 0, reducer);
}

motley_status motley_reducer_create_in_pieces(motley_comm* comm, int group_size,
                                              double timeout_seconds, size_t piece_bytes,
                                              motley_reducer** reducer) {
  *reducer = nullptr;
  return run(*comm, [&] {
    // Before it becomes a Duration, which holds no more than 300 years.
    if (!(timeout_seconds >= 0 && timeout_seconds <= kMostSeconds)) {
      throw motley::Error(ErrorCode::kInvalid,
                          fmt::format("motley_reducer_create: timeout_seconds is {}. Use 0 to {}.",
                                      timeout_seconds, kMostSeconds));
    }
    const motley::PartialOptions options{.group_size = group_size,
                                         .timeout = motley::seconds(timeout_seconds),
                                         .piece_bytes = piece_bytes};
    auto made =
        std::make_unique<motley_reducer>(comm, motley::PartialReducer(joined(*comm), options));
    *reducer = made.release();
  });
}

motley_status motley_reducer_average(motley_reducer* reducer, void* data, size_t count,
                                     motley_dtype dtype, int64_t step, motley_average* average) {
  return run(*reducer->comm,
             [&] { tell(reducer->reducer.average(view_of(data, count, dtype), step), average); });
}

motley_status motley_reducer_begin(motley_reducer* reducer, void* data, size_t count,
                                   motley_dtype dtype, int64_t step) {
  return run(*reducer->comm, [&] { reducer->reducer.begin(view_of(data, count, dtype), step); });
}

motley_status motley_reducer_ready(motley_reducer* reducer, size_t first, size_t count) {
  return run(*reducer->comm, [&] { reducer->reducer.ready(first, count); });
}

motley_status motley_reducer_finish(motley_reducer* reducer, motley_average* average) {
  return run(*reducer->comm, [&] { tell(reducer->reducer.finish(), average); });
}

motley_status motley_reducer_leave(motley_reducer* reducer) {
  return run(*reducer->comm, [&] { reducer->reducer.leave(); });
}

void motley_reducer_destroy(motley_reducer* reducer) {
  const std::unique_ptr<motley_reducer> owner(reducer);
}
