// A new folder for one run of a program, removed with all in it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "comm/error.h"

namespace motley::perf {

class ScratchFolder {
 public:
  ScratchFolder()
      : path_((std::filesystem::temp_directory_path() / "motley-perf-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw_errno("motley-perf: make a folder " + path_);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace motley::perf
