// Which cells a run measures, and how the command line says so.
#pragma once

#include <string>
#include <vector>

#include "comm/cli/perf/cell.h"
#include "comm/cli/perf/sampling.h"

namespace motley::perf {

inline constexpr const char* kAuto = "auto";  // the algorithm that the communicator chooses

struct Plan {
  std::vector<CallKind> kinds = {CallKind::kAllReduce};
  std::vector<std::size_t> sizes = {4};  // bytes, ascending
  std::vector<DType> dtypes = {DType::kFloat32};
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  std::vector<Place> places = {Place::kIn};
  std::vector<Buffers> buffers = {Buffers::kPrivate};
  std::vector<std::string> algorithms = {"auto"};  // "all": auto, then every family there is
  int root = 0;
  SamplingRule rule;
};

// All cells, sizes innermost. A size is rounded up to whole elements, one for each rank at least
// where the buffer has a block for each; sizes that become equal are measured once. Collectives
// that reduce nothing ignore the operations; those that have no other place, or no data, ignore
// the places, the sizes and the types. Algorithms that a collective does not have are left out.
std::vector<Cell> cells(const Plan& plan, int ranks);

// "4", "64K", "16M", "1G": bytes, powers of 1024. Throws kInvalid, naming `flag`.
std::size_t parse_size(const char* flag, const std::string& text);
// `from`, `from` * factor, … up to `to`. Throws kInvalid if there is none, or factor < 2.
std::vector<std::size_t> size_range(std::size_t from, std::size_t to, int factor);

// Comma-separated names, or "all". Each throws kInvalid, listing the names that there are.
std::vector<CallKind> parse_kinds(const std::string& text);
std::vector<DType> parse_dtypes(const std::string& text);
std::vector<ReduceOp> parse_ops(const std::string& text);
std::vector<Place> parse_places(const std::string& text);
std::vector<Buffers> parse_buffers(const std::string& text);
// `kinds`: the collectives one of which must have each name.
std::vector<std::string> parse_algorithms(const std::string& text,
                                          const std::vector<CallKind>& kinds);
// Whole numbers of at least 1.
std::vector<int> parse_numbers(const char* flag, const std::string& text);

// "64K", "1.5M", "12": the shortest that says it.
std::string size_text(std::size_t bytes);

}  // namespace motley::perf
