// How fast wide models train, beside other programs and beside what memory allows.
//
//   krows/s      thousand rows in a second of an epoch, reading left out: the mean of a run's
//                epochs, of the median of all rounds
//   per CPU-s    thousand rows in a second of processor time, times the threads: what it would be
//                on a machine that does nothing else
//   limit        thousand rows a second that memory allows, if each feature's weights were read and
//                written at random places of a table as large as the model: random rows of the same
//                size, changed in this run, divided by the features of a row. Features that are
//                used often stay in caches, so that a share above 100 % is possible.
//   times        ours by the peer's, at the thread count where the peer is better, by CPU time, too
//
// Peers run in turns with ours. Their epoch is the difference of a long and a short run of one
// round, by the number of epochs between, of the median of all rounds, as ours; a run before these
// is not counted, as it makes the files that they read afterwards instead of text. --threads that
// share cores with others' work tell little by the clock.
//
//   wide_perf --train rows.ffm --versus --libffm=path/of/ffm-train --xlearn=python3 --vw=python3
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "test/bench/wide/bench_main.h"
#include "test/bench/wide/memory_limit.h"
#include "test/bench/wide/peers.h"
#include "wide/reader.h"
#include "wide/trainer.h"

DEFINE_string(train, "",
              "libffm file; empty: rows drawn at random, 39 fields, some of them frequent");
DEFINE_string(models, "lr,fm8,fm16,ffm4", "kinds, with their k");
DEFINE_string(threads, "1,2", "numbers of threads");
DEFINE_int32(epochs, 5, "of a run");
DEFINE_int32(rounds, 3, "runs of everything, in turns");
DEFINE_bool(versus, false, "run the peers that there are, too");

namespace motley::wide {
namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

// What a run without a file trains on: ids of a field by a power law.
Dataset drawn(std::size_t rows) {
  Dataset data{.format = Format::kLibffm};
  std::mt19937_64 random(1);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::uint32_t field = 0; field < 39; ++field) {
      const double u = static_cast<double>(random() >> 11) * 0x1p-53;
      const auto id = static_cast<std::uint32_t>(1000 * u * u * u * u);
      data.ids.push_back(1000 * field + id);
      data.values.push_back(1);
      data.fields.push_back(field);
    }
    data.row_begin.push_back(data.ids.size());
    data.labels.push_back(static_cast<float>(random() % 4 == 0));
  }
  return data;
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Work work_of(const std::string& model, int threads) {
  const std::size_t digits = std::min(model.find_first_of("0123456789"), model.size());
  const std::string k = model.substr(digits);
  return {.model = model.substr(0, digits),
          .factors = k.empty() ? 0 : std::stoi(k),
          .threads = threads,
          .epochs = FLAGS_epochs};
}

void keep_best(Cost& best, const Cost& cost) {
  best.wall = std::min(best.wall, cost.wall);
  best.processor = std::min(best.processor, cost.processor);
}

constexpr Cost kNever{std::numeric_limits<double>::infinity(),
                      std::numeric_limits<double>::infinity()};

struct Ours {
  std::vector<Cost> costs;  // of an epoch, of each round
  TableShape table;
};

// The mean epoch of a run, but the first, which touches memory for the first time, as that of peers
// is the mean of all but one.
void add_run(const Dataset& data, const Work& work, Ours& ours) {
  TrainOptions options{.epochs = work.epochs + 1, .threads = work.threads};
  options.model.kind = model_kind(work.model);
  options.model.factors = std::max(work.factors, 1);
  TrainingRun run(data, std::nullopt, options);
  run.next_step();
  const auto begin = std::chrono::steady_clock::now();
  const double processor = processor_seconds();
  while (run.next_step()) {
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  ours.costs.push_back(
      {wall.count() / work.epochs, (processor_seconds() - processor) / work.epochs});
  const Layout& layout = run.model().layout();
  const std::size_t bytes =
      sizeof(float) * (layout.width > 0 ? layout.factors_stride() : layout.linear_stride());
  ours.table = {.rows = layout.slots * bytes / ((bytes + 63) / 64 * 64),
                .row_bytes = (bytes + 63) / 64 * 64};
}

struct Row {
  Ours ours;
  std::map<std::string, PeerRuns> peers;
};

void measure(const Dataset& data, const TrainingFiles& files, const std::vector<Peer>& peers,
             const Work& work, Row& row) {
  add_run(data, work, row.ours);
  Work longer = work;  // of peers, whose reading must not drown what is measured
  if (work.model == "lr") longer.epochs *= 10;
  if (work.model == "fm" || work.model == "ffm") longer.epochs *= 3;
  for (const Peer& peer : peers) {
    PeerRuns runs = row.peers[peer.name];
    if (runs.add(peer, longer, files)) {
      row.peers[peer.name] = runs;
    } else {
      row.peers.erase(peer.name);
    }
  }
}

double thousands(double rows, double seconds) { return seconds > 0 ? rows / seconds / 1e3 : 0; }

void print(const std::string& model, const std::map<int, Row>& by_threads, double rows,
           double features) {
  Cost best = kNever;  // of all peers at all numbers of threads
  for (const auto& [threads, row] : by_threads) {
    for (const auto& [name, runs] : row.peers) {
      const Cost cost = runs.epoch();
      fmt::print("{:5} {:18} {:2} threads {:9.0f} {:9.0f}\n", model, name, threads,
                 thousands(rows, cost.wall), thousands(rows, cost.processor / threads));
      if (cost.wall > 0 && cost.processor > 0) {  // else lost in the noise
        keep_best(best, {cost.wall, cost.processor / threads});
      }
    }
  }
  for (const auto& [threads, row] : by_threads) {
    const Cost cost = median(row.ours.costs);
    const double limit = random_rows_per_second(row.ours.table, threads) / features;
    const double speed = thousands(rows, cost.processor / threads);
    fmt::print("{:5} {:18} {:2} threads {:9.0f} {:9.0f}  limit {:7.0f}  share {:4.0f} %", model,
               "motley", threads, thousands(rows, cost.wall), speed, limit / 1e3,
               100e3 * speed / limit);
    if (best.wall < kNever.wall) {
      fmt::print("  times {:.2f}, by CPU {:.2f}", best.wall / cost.wall,
                 best.processor * threads / cost.processor);
    }
    fmt::print("\n");
  }
  std::fflush(stdout);
}

void run() {
  std::string folder = std::filesystem::temp_directory_path() / "motley_wide_perf_XXXXXX";
  std::vector<Peer> peers;
  TrainingFiles files;
  std::vector<std::string> missing;
  if (FLAGS_versus) {
    if (FLAGS_train.empty()) throw std::invalid_argument("--versus needs a file by --train");
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder " + folder);
    const std::vector<std::string> models = split(FLAGS_models);
    const bool fields = std::ranges::all_of(
        models, [](const std::string& model) { return model.starts_with("ffm"); });
    files = write_training_files(FLAGS_train, folder, fields ? Forms::kFields : Forms::kAll);
    peers = find_peers(missing);
    for (const std::string& peer : missing) fmt::print("not run, so not beaten: {}\n", peer);
  }
  const Dataset data = FLAGS_train.empty() ? drawn(200'000) : read_file(FLAGS_train);
  const auto rows = static_cast<double>(data.rows());
  const double features = static_cast<double>(data.entries()) / rows;
  fmt::print("{} rows of {:.1f} features, median of {} rounds of {} epochs\n", data.rows(),
             features, FLAGS_rounds, FLAGS_epochs);
  for (const Peer& peer : peers) {
    if (!peer.what.empty()) fmt::print("{}: {}\n", peer.name, peer.what);
  }
  fmt::print("model                             krows/s per CPU-s\n");
  for (const std::string& model : split(FLAGS_models)) {
    std::map<int, Row> by_threads;
    for (int round = 0; round < FLAGS_rounds; ++round) {
      for (const std::string& threads : split(FLAGS_threads)) {
        const Work work = work_of(model, std::stoi(threads));
        measure(data, files, peers, work, by_threads[work.threads]);
      }
    }
    print(model, by_threads, rows, features);
  }
  if (FLAGS_versus) std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace motley::wide

int main(int argc, char** argv) { return motley::wide::bench_main(argc, argv, motley::wide::run); }
