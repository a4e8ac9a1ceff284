// A benchmark's results: a table on the screen, one JSON object a line in a file.
//
// The first line of the file is the heading: {"line": "heading", "program", "library", "commit",
// "ranks", "transport", "flags", "machine": {"processor", "cores", "kernel"}}. Each further one is
// a cell: {"line": "cell", "collective", "bytes", "count", "type", "op", "place", "buffers",
// "asked", "algorithm", "time_us", "algbw_gbs", "busbw_gbs", "wrong", "p50_us", "p99_us", "calls",
// "samples"}. "asked" is the algorithm asked for, such as "auto". Our own schedules also have
// "price_us": what the cost model says that the call takes.
#pragma once

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "comm/cli/perf/cell.h"
#include "comm/cli/perf/sampling.h"

namespace motley::perf {

struct Heading {
  std::string program;
  std::string library;  // name and version
  std::string commit;   // of this project
  int ranks = 1;
  std::string transport;
  std::string flags;  // the command line
};

struct Result {
  Cell cell;
  std::string algorithm;  // that was used, where the cell asks for any
  Timing timing;
  std::optional<double> price;  // seconds, as the cost model says
  std::size_t wrong = 0;        // elements, on the rank that has most
};

class Report {
 public:
  // `json`: path of the file, overwritten; empty for none. Throws kIo if it cannot be written.
  // `screen`: null for no table.
  Report(const Heading& heading, const std::string& json, std::FILE* screen);

  void add(const Result& result);
  // A cell that was left out, and why.
  void skip(const Cell& cell, const std::string& why);
  // How many cells had wrong elements.
  int wrong_cells() const noexcept { return wrong_cells_; }

 private:
  int ranks_;
  std::string path_;
  std::ofstream json_;
  std::FILE* screen_;
  int wrong_cells_ = 0;
};

// The names of the table's columns over each other, and what they mean: part of --help.
std::string column_text();

// The commit of this build, "unknown" if it does not know it.
std::string commit_text();

// "AMD EPYC, 2 cores, Linux 6.1.0".
std::string machine_text();

}  // namespace motley::perf
