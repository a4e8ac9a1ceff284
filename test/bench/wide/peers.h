// test/bench/wide/peers.h: other trainers of wide models, run as programs on files of a benchmark.
// None is fetched or built here: each is used where it is installed, or where a flag
// says it is.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace motley::wide {

// The rows to train on, in the formats that peers read.
struct TrainingFiles {
  std::string folder;  // for all that peers write
  std::string ffm;
  std::string svm;
  std::string vw;
};
// Writes them into `folder`, from the libffm file `ffm`; kFields: that alone, which is copied.
enum class Forms { kFields, kAll };
TrainingFiles write_training_files(const std::string& ffm, const std::string& folder, Forms forms);

struct Work {
  std::string model;  // lr, fm or ffm
  int factors = 0;
  int threads = 1;
  int epochs = 1;
};

struct Peer {
  std::string name;
  std::string what = {};  // how it trains, where that is not by AdaGrad
  // The model of whose text a run keeps what it has read, for later runs; empty: of none.
  std::string keeps = {};
  // The command that does `work`; empty if the peer cannot.
  std::function<std::vector<std::string>(const Work&, const TrainingFiles&)> command;
  // Epochs that a run made, from what it printed, where it decides itself.
  std::function<std::optional<double>(const std::string& output)> epochs_made;
};
// Those that this machine has, by the flags --liblinear, --libffm, --libfm, --xlearn, --vw. Others
// are named in `missing`.
std::vector<Peer> find_peers(std::vector<std::string>& missing);

struct Cost {
  double wall = 0;       // seconds of an epoch, reading left out
  double processor = 0;  // processor seconds of it, of all threads
};

// What reading text costs a peer that keeps what it has read, in a folder where it has not run yet:
// a run on the text, less the quicker of two more.
Cost reading_cost(const Peer& peer, const TrainingFiles& files);

// The median, wall and processor time each by itself; of an even number the mean of the middle two.
Cost median(const std::vector<Cost>& costs);

// Runs of one epoch and of many, which differ in training alone: an uncounted run comes before the
// first. Each is compared with that of its own round, as the quickest of all rounds may have met
// quieter moments in one of them than in the other.
class PeerRuns {
 public:
  // Runs both once more. Returns false where the peer cannot do the work; throws Error where it
  // fails.
  bool add(const Peer& peer, Work work, const TrainingFiles& files);
  Cost epoch() const { return median(epochs_); }

 private:
  std::vector<Cost> epochs_;  // of each round
};

}  // namespace motley::wide
