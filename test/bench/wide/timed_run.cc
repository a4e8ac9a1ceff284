#include "test/bench/wide/timed_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>

#include "comm/error.h"

namespace motley::wide {
namespace {

double seconds_of(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

}  // namespace

// With its output in a file, so that no pipe fills up while the program is timed.
TimedRun timed_run(const std::vector<std::string>& command, const std::string& folder) {
  const std::string log = folder + "/output.txt";
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child < 0) throw_errno("fork");
  if (child == 0) {
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    if (chdir(folder.c_str()) == 0) execvp(words[0], words.data());
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) < 0) throw_errno("wait for " + command[0]);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  std::ifstream in(log);
  TimedRun result{wall.count(), seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime),
                  std::string(std::istreambuf_iterator<char>(in), {})};
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Error(ErrorCode::kInvalid, fmt::format("{} failed (status {}):\n{}", command[0], status,
                                                 result.output.substr(0, 2000)));
  }
  return result;
}

}  // namespace motley::wide
