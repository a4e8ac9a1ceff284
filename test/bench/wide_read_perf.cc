// How fast data sets are read, a thread: text as it is and compressed, columns, and the binary
// cache, beside how fast the fastest model trains on the same rows, and how fast peers read the
// text that they train on: those that keep what they have read, by what their first run takes
// longer.
//
// "Moved alone" is the limit of columns: the file is read in pieces, and as many bytes as its rows
// take are written to memory that is as new as theirs.
//
//   MB/s         of the file, for compressed text of what it unpacks to, by the clock
//   per CPU-s    the same in a second of processor time, of all threads
//   krows/s      thousand rows in a second, by the clock; of training: in an epoch of `lr`
//
//   wide_read_perf --train rows.ffm --versus --libffm=path/of/ffm-train --xlearn=python3
//   --vw=python3
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "test/bench/wide/bench_main.h"
#include "test/bench/wide/peers.h"
#include "wide/cache.h"
#include "wide/file/whole_file.h"
#include "wide/read_cached.h"
#include "wide/reader.h"
#include "wide/trainer.h"

DEFINE_string(train, "", "libffm file; empty: rows drawn at random, 39 fields");
DEFINE_string(criteo, "", "Criteo's TSV; empty: rows drawn at random in its form");
DEFINE_int32(threads, 1, "that read");
DEFINE_int32(rounds, 20, "runs of each, of which the best counts");
DEFINE_bool(versus, false, "run the peers that there are, three times each");

namespace motley::wide {
namespace {

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Cost best_of(const std::function<void()>& body) {
  Cost best;
  for (int round = 0; round < FLAGS_rounds; ++round) {
    const double processor = processor_seconds();
    const auto begin = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    const Cost cost{wall.count(), processor_seconds() - processor};
    if (round == 0 || cost.wall < best.wall) best.wall = cost.wall;
    if (round == 0 || cost.processor < best.processor) best.processor = cost.processor;
  }
  return best;
}

void write_drawn(const std::string& path) {
  std::mt19937_64 random(1);
  std::string text;
  for (int row = 0; row < 60'000; ++row) {
    text += random() % 4 == 0 ? "1" : "0";
    for (int field = 0; field < 39; ++field) {
      text += fmt::format(" {}:{}:1", field, field * 1000 + static_cast<int>(random() % 1000));
    }
    text += '\n';
  }
  std::ofstream(path, std::ios::binary) << text;
}

// Counts of any size, and words of 8 hexadecimal digits, of which more or fewer are missing.
void write_drawn_criteo(const std::string& path) {
  std::mt19937_64 random(2);
  std::string text;
  for (int row = 0; row < 60'000; ++row) {
    text += random() % 4 == 0 ? "1" : "0";
    for (int field = 0; field < 39; ++field) {
      text += '\t';
      if (random() % 40 < static_cast<unsigned>(field) % 13) continue;
      const std::uint64_t drawn = random() >> random() % 20;
      if (field < 13) text += fmt::format("{}", drawn % 100'000 >> drawn % 17);
      if (field >= 13) text += fmt::format("{:08x}", drawn % 1000 * 2654435761u % 0xffffffffu);
    }
    text += '\n';
  }
  std::ofstream(path, std::ios::binary) << text;
}

// The same rows without fields, with values that are not 1, and as columns.
void write_others(const std::string& ffm, const std::string& svm, const std::string& values,
                  const std::string& csv) {
  const Dataset data = read_file(ffm);
  std::ofstream svm_out(svm, std::ios::binary);
  std::ofstream values_out(values, std::ios::binary);
  std::ofstream csv_out(csv, std::ios::binary);
  csv_out << "label";
  for (int i = 1; i < 40; ++i) csv_out << ",C" << i;
  csv_out << '\n';
  for (std::size_t r = 0; r < data.rows(); ++r) {
    std::string a = fmt::format("{}", data.labels[r]);
    std::string b = a;
    std::string c = a;
    for (std::uint64_t e = data.row_begin[r]; e < data.row_begin[r + 1]; ++e) {
      a += fmt::format(" {}:1", data.ids[e]);
      b += fmt::format(" {}:0.{:06}", data.ids[e], data.ids[e] * 2654435761u % 1'000'000);
      if (e - data.row_begin[r] < 39) c += fmt::format(",{:x}", data.ids[e]);
    }
    c.append(39 - std::min<std::size_t>(39, data.row_begin[r + 1] - data.row_begin[r]), ',');
    svm_out << a << '\n';
    values_out << b << '\n';
    csv_out << c << '\n';
  }
}

void print(const std::string& what, double bytes, double rows, const Cost& cost) {
  fmt::print("{:24} {:8.0f} {:9.0f} {:9.0f}\n", what, bytes / cost.wall / 1e6,
             bytes / cost.processor / 1e6, rows / cost.wall / 1e3);
  std::fflush(stdout);
}

void measure(const std::string& what, const std::string& path, double bytes) {
  double rows = 0;
  const Cost cost = best_of(
      [&] { rows = static_cast<double>(read_file(path, {.threads = FLAGS_threads}).rows()); });
  print(what, bytes, rows, cost);
}

// What columns cost without parsing.
void measure_moved(const std::string& path, double bytes) {
  const Dataset like = read_file(path);
  std::string buffer(std::size_t{1} << 18, '\0');
  print("moved alone", bytes, static_cast<double>(like.rows()), best_of([&] {
          const OpenFile file(std::fopen(path.c_str(), "rb"));
          while (std::fread(buffer.data(), 1, buffer.size(), file.get()) == buffer.size()) {
          }
          Dataset moved;
          const auto fill = [](auto& column, std::size_t n) {
            column.resize(n);
            std::memset(column.data(), 1, n * sizeof column[0]);
          };
          fill(moved.row_begin, like.rows());
          fill(moved.labels, like.rows());
          fill(moved.ids, like.entries());
          fill(moved.values, like.entries());
          fill(moved.fields, like.entries());
        }));
}

void measure_peers(const std::string& ffm, const std::string& folder, double rows) {
  std::vector<std::string> missing;
  const std::vector<Peer> peers = find_peers(missing);
  for (const std::string& peer : missing) fmt::print("not run: {}\n", peer);
  for (const Peer& peer : peers) {
    if (peer.keeps.empty()) continue;
    double bytes = 0;
    Cost best;
    for (int round = 0; round < 3; ++round) {
      const std::string own = fmt::format("{}/{}{}", folder, peer.name, round);
      std::filesystem::create_directory(own);
      const TrainingFiles files = write_training_files(ffm, own, Forms::kAll);
      bytes = static_cast<double>(
          std::filesystem::file_size(peer.keeps == "ffm" ? files.ffm : files.vw));
      const Cost cost = reading_cost(peer, files);
      if (round == 0 || cost.wall < best.wall) best.wall = cost.wall;
      if (round == 0 || cost.processor < best.processor) best.processor = cost.processor;
    }
    print(peer.name + " text", bytes, rows, best);
  }
}

void run() {
  std::string folder = std::filesystem::temp_directory_path() / "motley_wide_read_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder " + folder);
  const std::string ffm = folder + "/rows.ffm";
  if (FLAGS_train.empty()) {
    write_drawn(ffm);
  } else {
    std::filesystem::copy_file(FLAGS_train, ffm);
  }
  write_others(ffm, folder + "/rows.svm", folder + "/values.svm", folder + "/rows.csv");
  const std::string tsv = folder + "/rows.tsv";
  if (FLAGS_criteo.empty()) {
    write_drawn_criteo(tsv);
  } else {
    std::filesystem::copy_file(FLAGS_criteo, tsv);
  }
  fmt::print("{} threads, best of {}\n                             MB/s per CPU-s   krows/s\n",
             FLAGS_threads, FLAGS_rounds);
  for (const char* name : {"rows.ffm", "rows.svm", "values.svm", "rows.csv", "rows.tsv"}) {
    const std::string path = folder + "/" + name;
    const auto bytes = static_cast<double>(std::filesystem::file_size(path));
    measure(name, path, bytes);
    if (path == tsv) measure_moved(path, bytes);
    if (path != tsv && path != ffm) continue;
    for (const char* pack : {"gzip -k", "zstd -qk"}) {
      if (std::system(fmt::format("{} '{}' 2>/dev/null", pack, path).c_str()) != 0) continue;
      measure(pack, path + (pack[0] == 'g' ? ".gz" : ".zst"), bytes);
    }
  }
  const Dataset data = read_file(ffm);
  const std::string cache = folder + "/rows.cache";
  save_cache(data, cache);
  const auto rows = static_cast<double>(data.rows());
  print("cache", static_cast<double>(std::filesystem::file_size(cache)), rows,
        best_of([&] { load_cache(cache, {.threads = FLAGS_threads}); }));
  print("the same without fields", static_cast<double>(std::filesystem::file_size(cache)), rows,
        best_of([&] { load_cache(cache, {.threads = FLAGS_threads, .fields = false}); }));
  const std::string own = folder + "/own.cache";
  print("cache, its text compared", static_cast<double>(std::filesystem::file_size(cache)), rows,
        best_of([&] { read_cached({ffm}, own, {.threads = FLAGS_threads}); }));
  TrainOptions options{.epochs = 1000, .threads = FLAGS_threads};
  options.model.kind = ModelKind::kLogistic;
  TrainingRun training(data, std::nullopt, options);
  training.next_step();
  print("an epoch of lr", 0, rows, best_of([&] { training.next_step(); }));
  if (FLAGS_versus) measure_peers(ffm, folder, rows);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace motley::wide

int main(int argc, char** argv) { return motley::wide::bench_main(argc, argv, motley::wide::run); }
