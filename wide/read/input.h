// wide/read/input.h: the bytes of a file, pipe or standard input, unpacked where they are gzip or
// zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace motley::wide {

// What unpacks one kind of compression.
class Unpacker {
 public:
  struct Step {
    std::size_t used = 0;  // of the packed bytes
    std::size_t made = 0;
  };
  virtual ~Unpacker() = default;
  // Unpacks some of in[0 … n) into out[0 … room). Throws kInvalid where the bytes are damaged.
  virtual Step unpack(const char* in, std::size_t n, char* out, std::size_t room) = 0;
  // Whether the bytes so far end a stream.
  virtual bool complete() const = 0;
  // How many bytes it may have unpacked that unpack() has not given out yet.
  virtual std::size_t ahead() const { return 0; }
};

class Input {
 public:
  // "-": standard input. Throws kIo.
  explicit Input(const std::string& path);
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  ~Input();

  const std::string& name() const noexcept { return name_; }  // for messages
  // Of the text; 0 where it cannot be known before the end.
  std::uint64_t size_bytes() const;
  // Of the text of a packed file whose first `given` bytes have been read, if all of it packs as
  // well as they do; else 0.
  std::uint64_t guess_bytes(std::uint64_t given) const;
  // Bytes put into out[0 … n); 0 at the end. Throws kIo; kInvalid for damaged or truncated packed
  // bytes.
  std::size_t read_some(char* out, std::size_t n);
  // Goes on at this byte of a file that is not packed. Throws kIo.
  void seek(std::uint64_t offset);

 private:
  std::size_t read_raw(char* out, std::size_t n);

  std::string name_;
  int fd_;
  std::string packed_;  // read, not yet given out or unpacked, from packed_begin_ on
  std::size_t packed_begin_ = 0;
  bool ended_ = false;  // nothing is left to read
  std::unique_ptr<Unpacker> unpacker_;
};

}  // namespace motley::wide
