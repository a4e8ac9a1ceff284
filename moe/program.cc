#include "moe/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "comm/error.h"

namespace motley::moe {
namespace {

const Op& at(const Program& program, int op) { return program.ops[static_cast<std::size_t>(op)]; }

// What a lane takes first: higher priority, then lower position.
struct Sooner {
  const Program* program;
  bool operator()(int a, int b) const {
    const int pa = at(*program, a).priority, pb = at(*program, b).priority;
    return pa != pb ? pa > pb : a < b;
  }
};

// Each operation when those that it is after have been listed, the soonest first. Shorter than the
// program if some wait for each other.
std::vector<int> listed(const Program& program) {
  const std::size_t count = program.ops.size();
  std::vector<std::size_t> waits(count);
  std::vector<std::vector<int>> next(count);
  std::set<int, Sooner> ready(Sooner{&program});
  for (std::size_t i = 0; i < count; ++i) {
    waits[i] = program.ops[i].after.size();
    for (const int before : program.ops[i].after) {
      next[static_cast<std::size_t>(before)].push_back(static_cast<int>(i));
    }
    if (waits[i] == 0) ready.insert(static_cast<int>(i));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int op = *ready.begin();
    ready.erase(ready.begin());
    order.push_back(op);
    for (const int then : next[static_cast<std::size_t>(op)]) {
      if (--waits[static_cast<std::size_t>(then)] == 0) ready.insert(then);
    }
  }
  return order;
}

// A cycle among the operations that listed() leaves out.
std::vector<int> cycle(const Program& program, const std::vector<int>& order) {
  const std::set<int> done(order.begin(), order.end());
  int op = 0;
  while (done.contains(op)) ++op;
  std::vector<int> path;
  while (std::ranges::find(path, op) == path.end()) {
    path.push_back(op);
    const auto& after = at(program, op).after;
    op = *std::ranges::find_if(after, [&](int before) { return !done.contains(before); });
  }
  path.erase(path.begin(), std::ranges::find(path, op));
  path.push_back(op);
  return path;
}

std::string described(const Program& program, int op) {
  return fmt::format("operation {} ({})", op, name(at(program, op).kind));
}

void check_op(const Program& program, int op) {
  const Op& it = at(program, op);
  if (it.rows < 0 || it.bytes < 0) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("moe program: {} has {} rows and {} bytes. Give numbers from 0 upwards.",
                    described(program, op), it.rows, it.bytes));
  }
  if (is_collective(it.kind) && !talks(it.lane)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe program: {} is on lane {}, where ranks may be in other orders. "
                            "Put it on intra_host or inter_host.",
                            described(program, op), name(it.lane)));
  }
  for (const int before : it.after) {
    if (before >= 0 && before < std::ssize(program.ops)) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe program: {} is after operation {}, but there are {}. Add what it "
                            "waits for.",
                            described(program, op), before, program.ops.size()));
  }
}

}  // namespace

const char* name(Lane lane) noexcept {
  constexpr const char* kNames[kLanes] = {"compute",   "intra_host", "inter_host",
                                          "host_copy", "disk",       "host"};
  return kNames[static_cast<std::size_t>(lane)];
}

const char* name(OpKind kind) noexcept {
  constexpr const char* kNames[kOpKinds] = {"plan",
                                            "encode",
                                            "dispatch",
                                            "experts",
                                            "combine",
                                            "decode",
                                            "encode_gradient",
                                            "weights_gradient",
                                            "experts_gradient",
                                            "parameters_gradient",
                                            "decode_gradient",
                                            "compress",
                                            "decompress",
                                            "gather_weights",
                                            "reduce_gradients",
                                            "move_expert",
                                            "fetch",
                                            "offload"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool is_collective(OpKind kind) noexcept {
  return kind == OpKind::kDispatch || kind == OpKind::kCombine || kind == OpKind::kGatherWeights ||
         kind == OpKind::kReduceGradients;
}

void check(const Program& program) {
  for (int op = 0; op < std::ssize(program.ops); ++op) check_op(program, op);
  const std::vector<int> order = listed(program);
  if (order.size() == program.ops.size()) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe program: {} of {} operations wait for each other, as {} (each after "
                          "the next). Remove one of these from `after`.",
                          program.ops.size() - order.size(), program.ops.size(),
                          fmt::join(cycle(program, order), ", ")));
}

void check_alike(std::span<const Program> programs) {
  for (std::size_t rank = 1; rank < programs.size(); ++rank) {
    const Program &first = programs[0], &other = programs[rank];
    if (first.ops.size() != other.ops.size()) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("moe program: rank 0 has {} operations, rank {} has {}. Build all "
                              "ranks' programs alike.",
                              first.ops.size(), rank, other.ops.size()));
    }
    for (int op = 0; op < std::ssize(first.ops); ++op) {
      const Op &a = at(first, op), &b = at(other, op);
      const bool alike = a.kind == b.kind && a.lane == b.lane && a.chunk == b.chunk &&
                         a.priority == b.priority && a.after == b.after &&
                         a.algorithm == b.algorithm;
      if (alike) continue;
      throw Error(ErrorCode::kInvalid,
                  fmt::format("moe program: of rank 0 it has \"{}\", of rank {} \"{}\". Build all "
                              "ranks' programs alike, whatever their rows.",
                              to_text(first, op), rank, to_text(other, op)));
    }
  }
}

std::vector<int> fixed_order(const Program& program, Lane lane) {
  std::vector<int> order = serial_order(program);
  std::erase_if(order, [&](int op) { return at(program, op).lane != lane; });
  return order;
}

std::vector<int> serial_order(const Program& program) {
  check(program);
  return listed(program);
}

bool is_chain(const Program& program) {
  for (int op = 1; op < std::ssize(program.ops); ++op) {
    if (std::ranges::find(at(program, op).after, op - 1) == at(program, op).after.end())
      return false;
  }
  return true;
}

std::string to_text(const Program& program, int op) {
  const Op& it = at(program, op);
  std::string text = fmt::format("{} {} on {}, chunk {}: {} rows, {} bytes", op, name(it.kind),
                                 name(it.lane), it.chunk, it.rows, it.bytes);
  if (!it.gemms.empty()) text += fmt::format(", {} gemms", it.gemms.size());
  if (!it.algorithm.empty()) text += ", " + it.algorithm;
  if (it.priority != 0) text += fmt::format(", priority {}", it.priority);
  if (!it.after.empty()) text += fmt::format("; after {}", fmt::join(it.after, ", "));
  return text;
}

std::string to_text(const Program& program) {
  std::string text = program.strategy + "\n";
  for (int op = 0; op < std::ssize(program.ops); ++op) text += to_text(program, op) + "\n";
  return text;
}

}  // namespace motley::moe
