// test/support/temporary_folder.h: a new folder, removed with all in it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "comm/error.h"

namespace motley::test {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(std::filesystem::temp_directory_path() / "motley-test-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw_errno("make folder " + path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const noexcept { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace motley::test
