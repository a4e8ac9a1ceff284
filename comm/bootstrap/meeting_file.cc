#include "comm/bootstrap/meeting_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "comm/error.h"

namespace motley {
namespace {

constexpr const char* kHeading = "motley meeting place 1";

}  // namespace

void write_meeting_file(const std::string& path, const MeetingPlace& place) {
  std::string text = fmt::format("{}\n{}\n", kHeading, place.token);
  for (const std::string& address : place.addresses) text += address + "\n";
  const std::string temporary = fmt::format("{}.{}", path, getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) throw_errno(fmt::format("create {} for the ranks to meet", temporary));
  const bool written =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  if (!written) {
    close(fd);
    unlink(temporary.c_str());
    throw_errno(fmt::format("write {} for the ranks to meet", temporary));
  }
  close(fd);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    throw_errno(fmt::format("rename {} to {}", temporary, path));
  }
}

std::optional<MeetingPlace> read_meeting_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string heading;
  MeetingPlace place;
  std::getline(file, heading);
  std::getline(file, place.token);
  for (std::string line; std::getline(file, line);) place.addresses.push_back(line);
  if (heading != kHeading || place.addresses.empty()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("{}: this file was not written by a rank 0 for the others to meet. Use "
                            "a path of its own for each job.",
                            path));
  }
  return place;
}

}  // namespace motley
