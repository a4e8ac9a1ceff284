// moe/program.h: a layer's work as data: a graph of operations on lanes. The executor (executor.h)
// runs it, the simulator (simulator.h) walks through it in virtual time, on one cost model.
//
//   Program program{.strategy = "by hand"};
//   const int rows = program.add({.kind = OpKind::kEncode, .lane = Lane::kCompute, .bytes = 4096});
//   program.add({.kind = OpKind::kDispatch, .lane = Lane::kIntraHost, .after = {rows}});
//   check(program);
//
// Meaning, once for all. An operation starts when all that it is `after` have ended and its lane is
// free; a lane does one at a time. On lanes that talk to other ranks operations run in order of
// priority, then of position, as far as `after` lets them, whenever they become ready: all ranks
// make the same calls in the same order. On the other lanes the one that is ready and has the
// highest priority runs next, then the first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace motley::moe {

// What a rank can do at the same time.
enum class Lane : std::uint8_t {
  kCompute,    // the processor's vectors, or a GPU's multiprocessors
  kIntraHost,  // messages within a host
  kInterHost,  // messages between hosts
  kHostCopy,   // between host and device memory
  kDisk,
  kHost,  // planning, book-keeping
};
inline constexpr int kLanes = 6;
const char* name(Lane lane) noexcept;
// Whether what runs there needs other ranks, which must be in the same order.
constexpr bool talks(Lane lane) noexcept {
  return lane == Lane::kIntraHost || lane == Lane::kInterHost;
}

enum class OpKind : std::uint8_t {
  kPlan,                // from routing to rows
  kEncode,              // tokens to rows to be sent
  kDispatch,            // all-to-all of rows, to their experts
  kExperts,             // forward of the experts, on rows that are here
  kCombine,             // all-to-all of rows, back to their tokens
  kDecode,              // rows to tokens, weighted
  kEncodeGradient,      // of tokens to rows
  kWeightsGradient,     // of the weights that outputs are multiplied with
  kExpertsGradient,     // backward of the experts: of rows
  kParametersGradient,  // backward of the experts: of their parameters, all chunks at once
  kDecodeGradient,      // of rows to tokens
  kCompress,
  kDecompress,
  kGatherWeights,    // of experts that lie on several ranks
  kReduceGradients,  // of such experts
  kMoveExpert,       // from a rank to another
  kFetch,            // from a slower memory
  kOffload,          // to a slower memory
};
inline constexpr int kOpKinds = 18;
const char* name(OpKind kind) noexcept;
// Whether all ranks take part, so that it ends on all together.
bool is_collective(OpKind kind) noexcept;

// A product of a [rows, inner] and an [inner, columns] matrix.
struct GemmShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  friend bool operator==(const GemmShape&, const GemmShape&) = default;
};

struct Op {
  OpKind kind = OpKind::kPlan;
  Lane lane = Lane::kCompute;
  int chunk = 0;                // of the pipeline
  int priority = 0;             // higher runs earlier, where a lane has a choice
  std::vector<int> after = {};  // positions of operations that must have ended
  std::int64_t rows = 0;        // that are worked on
  std::int64_t bytes = 0;       // read and written; of messages, sent
  std::vector<GemmShape> gemms = {};
  // Of all-to-alls: bytes for and from each rank, 0 for its own; empty for other kinds.
  std::vector<std::int64_t> sent = {};
  std::vector<std::int64_t> received = {};
  std::string algorithm = {};  // of comm; empty: chosen
  friend bool operator==(const Op&, const Op&) = default;
};

struct Program {
  std::string strategy;  // which builder made it
  std::vector<Op> ops = {};

  // Its position.
  int add(Op op) {
    ops.push_back(std::move(op));
    return static_cast<int>(ops.size()) - 1;
  }
  friend bool operator==(const Program&, const Program&) = default;
};

// Throws kInvalid, naming the operations, where one is after itself, however indirectly, or after
// one that is not there, has a negative number of bytes or rows, or is a collective on a lane that
// does not talk.
void check(const Program& program);
// The ranks' programs of one layer. Throws kInvalid, naming rank and operation, unless all have the
// same operations but for sizes.
void check_alike(std::span<const Program> programs);

// The order in which operations of a lane that talks() run: as said above.
std::vector<int> fixed_order(const Program& program, Lane lane);
// An order of all operations in which each comes after those it must: what one thread would do.
std::vector<int> serial_order(const Program& program);
// Whether each operation is after the one before, so that nothing can overlap.
bool is_chain(const Program& program);

// "3 experts on compute, chunk 1: 96 rows, 2 gemms; after 1, 2", one line each.
std::string to_text(const Program& program);
std::string to_text(const Program& program, int op);

}  // namespace motley::moe
