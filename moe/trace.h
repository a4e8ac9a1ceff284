// moe/trace.h: what gates decided, step by step, in a file: for planners and simulators that are to
// work on what really happened.
//
//   TraceWriter trace("run.trace", {.experts = 8, .layers = 2, .top_k = 2});
//   trace.write({step, layer, gathered(comm, model.routing(layer))});   // rank 0 writes
//   trace.close();
//   for (const TraceRecord& record : read_trace("run.trace").records) …
//
// The file: the line "motley moe trace 2", a line of JSON with experts, layers and top_k, and the
// CRC-32 of both (4 bytes); then records: "rec\n", step (8), layer, tokens (4 each), the experts of
// each choice (2 each, -1 for none), and the CRC-32 of all that (4); then "end\n", the number of
// records (8) and the CRC-32 of both (4). Little-endian.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "moe/routing.h"

namespace motley::moe {

struct TraceHeader {
  int experts = 0;  // at most 32,767
  int layers = 0;
  int top_k = 0;
  friend bool operator==(const TraceHeader&, const TraceHeader&) = default;
};

struct TraceRecord {
  std::int64_t step = 0;
  int layer = 0;
  std::vector<std::int32_t> expert;  // [tokens, top_k], kNoExpert for none
  friend bool operator==(const TraceRecord&, const TraceRecord&) = default;
};

// The experts of all ranks' tokens, rank by rank, on rank 0; empty on others. Every rank calls it.
std::vector<std::int32_t> gathered(Communicator& comm, const Routing& routing);

class TraceWriter {
 public:
  // Throws kIo if `path` cannot be created, kInvalid for a header out of range.
  TraceWriter(std::string path, const TraceHeader& header);

  //   errors  kInvalid for a layer or expert that is not in the header, or no whole tokens
  void write(const TraceRecord& record);
  // Writes the end. Throws kIo, naming the file, if anything was not written. Without it the trace
  // counts as cut.
  void close();

 private:
  std::string path_;
  TraceHeader header_;
  std::ofstream out_;
  std::int64_t records_ = 0;
};

struct Trace {
  TraceHeader header;
  std::vector<TraceRecord> records;
};

// Throws kIo if it cannot be read; kInvalid, with the record's number, for what is cut, damaged or
// not a trace.
Trace read_trace(const std::string& path);

// How often each expert was chosen in a record, [experts]. Throws kInvalid if one is not in the
// header.
std::vector<std::int64_t> loads(const TraceHeader& header, const TraceRecord& record);

}  // namespace motley::moe
