// wide/file/parts_folder.h: a folder of numbered files that lives as long as its owner does.
#pragma once

#include <cstddef>
#include <string>

namespace motley::wide {

class PartsFolder {
 public:
  // Makes it and locks it. One that is there already is taken over, and emptied, if nobody holds
  // its lock and all that is in it are such files: a run that was killed left it. Throws kInvalid
  // where it is somebody's still, or holds anything else; kIo.
  explicit PartsFolder(const std::string& path);
  PartsFolder(PartsFolder&& other) noexcept;
  PartsFolder& operator=(PartsFolder&&) = delete;
  ~PartsFolder();  // removes it

  std::string file(std::size_t number) const;

 private:
  void empty() const;

  std::string path_;
  int lock_ = -1;
};

}  // namespace motley::wide
