// wide/file/whole_file.h: files that are replaced whole or not at all, and read with their size
// known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace motley::wide {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OpenFile = std::unique_ptr<std::FILE, CloseFile>;

// What is put goes to a file beside the one named, which commit() moves to its place, where a link
// leads to; without commit() nothing is left. Of several that write one file at once the last that
// commits stays. A device or pipe is written to as it is.
class WholeFile {
 public:
  // Throws kIo, as do all others.
  explicit WholeFile(const std::string& path);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void put(const void* data, std::size_t n);
  void put(const std::string& text) { put(text.data(), text.size()); }
  void commit();  // once, at the end
  // Of all that was put so far, as zlib has it.
  std::uint32_t crc() const noexcept { return crc_; }

  // Throws kIo if the system would not let a file of this name be written. Leaves all as it is.
  static void check(const std::string& path);
  // Where no other writes that file.
  static std::string name_until_whole(const std::string& path);

 private:
  std::string last_;   // the name in the end
  std::string fresh_;  // and until then
  bool replaces_;
  OpenFile file_;
  std::uint32_t crc_ = 0;
};

// A file that is read from its beginning to its end.
class SizedFile {
 public:
  explicit SizedFile(const std::string& path);  // throws kIo

  std::uint64_t size() const noexcept { return size_; }
  std::uint32_t crc() const noexcept { return crc_; }  // of all that was read so far
  void get(void* data, std::size_t n);                 // throws kInvalid where the file ends before
  // Throws kInvalid: path: what.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string path_;
  OpenFile file_;
  std::uint64_t size_ = 0;
  std::uint32_t crc_ = 0;
};

}  // namespace motley::wide
