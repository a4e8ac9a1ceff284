#include "comm/cli/perf/flags.h"

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <cstdlib>

#include "comm/cli/perf/report.h"
#include "comm/device.h"
#include "comm/error.h"
#include "comm/version.h"

DEFINE_string(b, "4", "smallest size in bytes; K, M and G are powers of 1024");
DEFINE_string(e, "16M", "largest size in bytes");
DEFINE_int32(f, 4, "factor between sizes");
DEFINE_string(collectives, "all_reduce", "names with commas between them, or all");
DEFINE_string(dtypes, "float32", "names with commas between them, or all");
DEFINE_string(ops, "sum", "names with commas between them, or all");
DEFINE_string(places, "out,in", "out: out of place; in: in place");
DEFINE_string(buffers, "private", "private, allocated (Communicator::allocate), or both");
DEFINE_string(memory, "host", "host, or device: buffers in the memory of each rank's GPU");
DEFINE_int32(root, 0, "root of broadcast, reduce, gather and scatter");
DEFINE_double(
    cap, 2,
    "seconds that timing a cell may take; a sample is always taken, three if they are short");
DEFINE_int32(samples, 60, "samples of a cell, at most");
DEFINE_string(json, "", "file to write the results to as JSON lines");

DECLARE_bool(help);
DECLARE_bool(version);

namespace motley::perf {
namespace {

// The flags of our own programs, and of no library.
std::string flag_text() {
  std::vector<gflags::CommandLineFlagInfo> all;
  gflags::GetAllFlags(&all);
  std::string text = "Flags\n";
  for (const gflags::CommandLineFlagInfo& flag : all) {
    const bool ours = flag.filename.find("perf") != std::string::npos;
    if (!ours) continue;
    const std::string dashes = flag.name.size() == 1 ? "-" : "--";
    text += fmt::format("  {:<14} {}", dashes + flag.name, flag.description);
    const bool plain = flag.default_value.empty() || flag.type == "bool";
    text += plain ? "\n" : fmt::format(" ({})\n", flag.default_value);
  }
  return text;
}

std::vector<Buffers> buffers_from_flags() {
  if (FLAGS_memory == "host") return parse_buffers(FLAGS_buffers);
  if (FLAGS_memory != "device" || FLAGS_buffers != "private") {
    throw Error(ErrorCode::kInvalid,
                fmt::format("motley-perf: --memory is {} and --buffers {}. Use --memory host, or "
                            "--memory device and no --buffers.",
                            FLAGS_memory, FLAGS_buffers));
  }
  if (device_count() > 0) return {Buffers::kDevice};
  throw Error(ErrorCode::kUnavailable,
              "motley-perf: --memory is device, but there is no device: CUDA is not in this build, "
              "or finds none. Use --memory host.");
}

}  // namespace

void parse_command_line(int argc, char** argv, const char* usage) {
  gflags::SetVersionString(version_text());
  gflags::SetUsageMessage(usage);
  gflags::ParseCommandLineNonHelpFlags(&argc, &argv, true);
  if (FLAGS_help) {
    fmt::print("{}\n{}\n{}", usage, flag_text(), column_text());
    std::exit(0);
  }
  gflags::HandleCommandLineHelpFlags();
  if (argc == 1) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("motley-perf: \"{}\" is no flag. See --help.", argv[1]));
}

Plan plan_from_flags() {
  if (!(FLAGS_cap > 0 && FLAGS_cap <= 1e6)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("motley-perf: --cap is {}. Use seconds in (0, 1e6].", FLAGS_cap));
  }
  if (FLAGS_samples < 1) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("motley-perf: --samples is {}. Use 1 or more.", FLAGS_samples));
  }
  return {.kinds = parse_kinds(FLAGS_collectives),
          .sizes = size_range(parse_size("-b", FLAGS_b), parse_size("-e", FLAGS_e), FLAGS_f),
          .dtypes = parse_dtypes(FLAGS_dtypes),
          .ops = parse_ops(FLAGS_ops),
          .places = parse_places(FLAGS_places),
          .buffers = buffers_from_flags(),
          .root = FLAGS_root,
          .rule = {.cap = seconds(FLAGS_cap), .samples = FLAGS_samples}};
}

std::string json_path() { return FLAGS_json; }

}  // namespace motley::perf
