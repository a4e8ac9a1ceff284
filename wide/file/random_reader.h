// wide/file/random_reader.h: a file of which any thread reads at any place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace motley::wide {

class RandomReader {
 public:
  explicit RandomReader(const std::string& path);  // throws kIo, as do all others
  ~RandomReader();
  RandomReader(const RandomReader&) = delete;
  RandomReader& operator=(const RandomReader&) = delete;

  const std::string& path() const noexcept { return path_; }
  std::uint64_t size() const;
  // Bytes put into out[0 … n); fewer only where the file ends.
  std::size_t get(void* out, std::size_t n, std::uint64_t offset) const;

 private:
  std::string path_;
  int fd_;
};

}  // namespace motley::wide
