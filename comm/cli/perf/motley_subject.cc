#include "comm/cli/perf/motley_subject.h"

#include <bit>

#include "comm/algorithm/families.h"
#include "comm/executor/engine.h"
#include "comm/transport/transport.h"
#include "comm/version.h"

namespace motley::perf {

std::string MotleySubject::library() const {
  const std::string version = version_text();
  return "Motley " + version.substr(0, version.find('\n'));
}

void MotleySubject::greatest(std::span<double> values) {
  comm_.all_reduce(View(values), ReduceOp::kMax).wait();
}

std::unique_ptr<Storage> MotleySubject::allocate(std::size_t bytes, Buffers buffers) {
  return buffers == Buffers::kPrivate ? private_storage(bytes) : nullptr;
}

Subject::Call MotleySubject::prepare(const Cell& cell, ConstView in, View out) {
  Communicator& comm = comm_;
  CallOptions options;
  if (cell.algorithm != comm.options().algorithm) options.algorithm = cell.algorithm;
  const bool in_place = cell.place == Place::kIn;
  switch (cell.kind) {
    case CallKind::kAllReduce:
      if (in_place) return [=, &comm, op = cell.op] { comm.all_reduce(out, op, options).wait(); };
      return [=, &comm, op = cell.op] { comm.all_reduce(in, out, op, options).wait(); };
    case CallKind::kAllToAll:
      return [=, &comm] { comm.all_to_all(in, out, options).wait(); };
    case CallKind::kBroadcast:
      return [=, &comm, root = cell.root] { comm.broadcast(out, root, options).wait(); };
    case CallKind::kBarrier:
      return [=, &comm] { comm.barrier(options).wait(); };
    default:
      return {};
  }
}

// What the communicator chooses by: all sizes up to a power of two are alike to it.
Choice MotleySubject::choice(const Cell& cell) const {
  return {.kind = cell.kind, .bytes = std::bit_ceil(cell.bytes()), .root = cell.root};
}

const Topology& MotleySubject::topology() const { return comm_.topology(); }

std::string MotleySubject::algorithm(const Cell& cell) const {
  if (cell.algorithm != "auto") return cell.algorithm;
  const int chosen = choose(choice(cell), topology());
  return algorithms_of(cell.kind)[static_cast<std::size_t>(chosen)].name;
}

std::optional<double> MotleySubject::price(const Cell& cell) const {
  const std::string wanted = algorithm(cell);
  Choice exactly = choice(cell);
  exactly.bytes = cell.bytes();
  for (const Price& price : prices(exactly, topology())) {
    if (wanted == price.family) return to_seconds(price.time);
  }
  return std::nullopt;
}

std::string MotleySubject::explanation(const Cell& cell) const {
  return explain(choice(cell), topology());
}

}  // namespace motley::perf
