#include "test/wide/torment.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "wide/cache.h"
#include "wide/model.h"

namespace motley::wide {
namespace {

using Clock = std::chrono::steady_clock;

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Starts the program with files of at most `file_bytes`; writing more fails as on a full disk.
pid_t start(const Torment& options, std::vector<std::string> words, std::uint64_t file_bytes) {
  words.insert(words.begin(), options.program);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid > 0) return pid;
  if (chdir(options.folder.c_str()) != 0) _exit(99);
  if (file_bytes > 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{file_bytes, file_bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  if (freopen("/dev/null", "w", stdout) == nullptr ||
      freopen("/dev/null", "w", stderr) == nullptr) {
    _exit(98);
  }
  execv(arguments[0], arguments.data());
  _exit(97);
}

int status_of(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
  }
  return status;
}

// What is wrong with the files that complete runs left; empty: nothing.
std::string wrong(const Torment& options) {
  try {
    const Model model = Model::load(options.folder + "/m");
    model.scores(model.prepare(read_file(options.folder + "/t.ffm")));
    load_cache(options.folder + "/c");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

class Run {
 public:
  explicit Run(const Torment& options) : options_(options), random_(options.seed) {
    std::string text;
    for (int i = 0; i < 3000; ++i) {
      text += fmt::format("{} 0:{}:1 1:{}:1 2:{}:0.5\n", i % 2, draw(1000), 1000 + draw(50),
                          2000 + draw(9));
    }
    write(options.folder + "/t.ffm", text);
    const auto begin = Clock::now();
    if (!all_complete()) throw std::runtime_error("no first run");
    usual_ = std::chrono::duration<double>(Clock::now() - begin).count() /
             static_cast<double>(commands("t.ffm").size());
    whole_ = {text, bytes_of(options.folder + "/c")};
  }

  // Whether nothing that was left behind keeps a run from its end.
  bool all_complete() const {
    const auto all = commands("t.ffm");
    return std::all_of(all.begin(), all.end(), [this](const auto& words) {
      return status_of(start(options_, words, 0)) == 0;
    });
  }

  void round(TormentResult& result) {
    ++result.rounds;
    const auto all = commands("t.ffm");
    const std::vector<std::string>& words = all[draw(all.size())];
    switch (draw(3)) {
      case 0: {
        const pid_t pid = start(options_, words, 0);
        std::this_thread::sleep_for(
            std::chrono::duration<double>(usual_ * 1.5 * static_cast<double>(draw(1000)) / 1000));
        constexpr int kSignals[] = {SIGKILL, SIGINT, SIGTERM};
        kill(pid, kSignals[draw(3)]);
        (WIFSIGNALED(status_of(pid)) ? result.killed : result.finished) += 1;
        break;
      }
      case 1: {
        const int status = status_of(start(options_, words, 1 + draw(400'000)));
        if (WIFSIGNALED(status)) result.broken = "a full disk ended it by a signal";
        (WEXITSTATUS(status) == 0 ? result.finished : result.full) += 1;
        break;
      }
      default: {
        const std::string& bytes = whole_[draw(2)];
        write(options_.folder + "/cut", bytes.substr(0, draw(bytes.size())));
        const int status = status_of(start(options_, commands("cut")[draw(3)], 0));
        if (WIFSIGNALED(status)) result.broken = "truncated input ended it by a signal";
        (WEXITSTATUS(status) == 0 ? result.finished : result.cut) += 1;
      }
    }
    if (result.broken.empty()) result.broken = wrong(options_);
  }

 private:
  std::size_t draw(std::size_t below) { return random_() % below; }
  // Each ends with a file in the place of one that a complete run left.
  static std::vector<std::vector<std::string>> commands(const std::string& data) {
    return {{"train", data, "-m", "ffm", "-e", "3", "-q", "-o", "m"},
            {"train", data, "-m", "fm", "--online", "--online_rows", "700", "-q", "-o", "m"},
            {"train", data, "-m", "fm", "--disk", "--disk_rows", "700", "-e", "3", "-q", "-o", "m"},
            {"convert", data, "-q", "-o", "c"}};
  }

  Torment options_;
  std::mt19937_64 random_;
  double usual_ = 0;                // seconds of a run
  std::vector<std::string> whole_;  // files to truncate
};

}  // namespace

TormentResult torment(const Torment& options) {
  std::filesystem::create_directories(options.folder);
  Run run(options);
  TormentResult result;
  const auto begin = Clock::now();
  while (result.broken.empty() && (options.rounds == 0 || result.rounds < options.rounds) &&
         (options.seconds == 0 ||
          std::chrono::duration<double>(Clock::now() - begin).count() < options.seconds)) {
    run.round(result);
  }
  if (result.broken.empty() && !run.all_complete()) result.broken = "a run fails after all others";
  return result;
}

}  // namespace motley::wide
