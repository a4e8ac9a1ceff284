#include "comm/cli/perf/motley_subject.h"

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
  switch (cell.kind) {
    case CallKind::kAllReduce:
      if (cell.place == Place::kIn)
        return [&comm, out, op = cell.op] { comm.all_reduce(out, op).wait(); };
      return [&comm, in, out, op = cell.op] { comm.all_reduce(in, out, op).wait(); };
    case CallKind::kBroadcast:
      return [&comm, out, root = cell.root] { comm.broadcast(out, root).wait(); };
    case CallKind::kBarrier:
      return [&comm] { comm.barrier().wait(); };
    default:  // no command line names it
      break;
  }
  return {};
}

std::string MotleySubject::algorithm(const Cell& cell) const {
  return cell.kind == CallKind::kAllReduce ? comm_.options().algorithm : "auto";
}

}  // namespace motley::perf
