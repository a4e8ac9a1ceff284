// runtime/file_system.h: the system calls that change files, so that tests can fail each, or cut
// the power at it.
//
//   LocalFiles files;
//   auto file = files.create("model.tmp");
//   file->write(bytes);
//   file->sync();                                   // the content survives a power cut
//   files.rename("model.tmp", "model");
//   files.sync_folder(".");                         // the name does
//
// Every call throws kIo, with the path and the reason. Any thread may call.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/view.h"

namespace motley::runtime {

class File {
 public:
  virtual ~File() = default;                 // closes
  virtual void write(ConstBytes bytes) = 0;  // all of them, at the end
  virtual void sync() = 0;                   // returns when all that was written is on the disk
};

// While it lives, what it was taken for belongs to nobody else.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Takes `path`, an empty file made for it, which stays; the end of the process gives it back.
  // Throws kUnavailable if another has it, in this process or another.
  virtual std::unique_ptr<FileLock> lock(const std::string& path) = 0;
  // An empty file for writing; one of this name is emptied.
  virtual std::unique_ptr<File> create(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;  // replaces `to`
  virtual void remove(const std::string& path) = 0;
  // Makes a folder and those above it; none of them is an error if it is there.
  virtual void make_folder(const std::string& path) = 0;
  // Returns when the names in the folder are on the disk.
  virtual void sync_folder(const std::string& path) = 0;

  // Names of files in a folder, in no order; none for a folder that is not there.
  virtual std::vector<std::string> list(const std::string& folder) const = 0;
  virtual std::vector<std::byte> read(const std::string& path) const = 0;
};

// The operating system's.
class LocalFiles final : public FileSystem {
 public:
  std::unique_ptr<FileLock> lock(const std::string& path) override;
  std::unique_ptr<File> create(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void make_folder(const std::string& path) override;
  void sync_folder(const std::string& path) override;
  std::vector<std::string> list(const std::string& folder) const override;
  std::vector<std::byte> read(const std::string& path) const override;
};

}  // namespace motley::runtime
