#include "wide/read/input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/error.h"

namespace motley::wide {
namespace {

constexpr std::size_t kPackedBytes = std::size_t{1} << 18;

class Gzip final : public Unpacker {
 public:
  Gzip() {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  Step unpack(const char* in, std::size_t n, char* out, std::size_t room) override {
    if (complete_) {  // another member follows
      inflateReset(&stream_);
      complete_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in));
    stream_.avail_in = static_cast<uInt>(n);
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("gzip data is damaged ({})",
                              stream_.msg != nullptr ? stream_.msg : "no header"));
    }
    complete_ = result == Z_STREAM_END;
    return {n - stream_.avail_in, room - stream_.avail_out};
  }
  bool complete() const override { return complete_; }

 private:
  z_stream stream_{};
  bool complete_ = false;
};

class Zstd final : public Unpacker {
 public:
  Zstd() : stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) throw std::bad_alloc();
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;

  Step unpack(const char* in, std::size_t n, char* out, std::size_t room) override {
    ZSTD_inBuffer from{in, n, 0};
    ZSTD_outBuffer to{out, room, 0};
    const std::size_t result = ZSTD_decompressStream(stream_, &to, &from);
    if (ZSTD_isError(result) != 0) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("zstd data is damaged ({})", ZSTD_getErrorName(result)));
    }
    complete_ = result == 0;
    return {from.pos, to.pos};
  }
  bool complete() const override { return complete_; }

 private:
  ZSTD_DStream* stream_;
  bool complete_ = false;
};

std::unique_ptr<Unpacker> unpacker_for(const std::string& start) {
  if (start.starts_with("\x1f\x8b")) return std::make_unique<Gzip>();
  if (start.starts_with("\x28\xb5\x2f\xfd")) return std::make_unique<Zstd>();
  return nullptr;
}

}  // namespace

Input::Input(const std::string& path)
    : name_(path == "-" ? "standard input" : path),
      fd_(path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                      : open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) throw_errno("open " + name_);
  try {
    packed_.resize(4);
    std::size_t filled = 0;
    while (filled < packed_.size()) {
      const std::size_t got = read_raw(packed_.data() + filled, packed_.size() - filled);
      if (got == 0) break;
      filled += got;
    }
    packed_.resize(filled);
    unpacker_ = unpacker_for(packed_);
  } catch (...) {
    close(fd_);
    throw;
  }
}

Input::~Input() { close(fd_); }

std::uint64_t Input::size_bytes() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) throw_errno("fstat " + name_);
  return S_ISREG(info.st_mode) && unpacker_ == nullptr ? static_cast<std::uint64_t>(info.st_size)
                                                       : 0;
}

std::size_t Input::read_raw(char* out, std::size_t n) {
  for (;;) {
    const ssize_t got = ::read(fd_, out, n);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) throw_errno("read " + name_);
  }
}

void Input::seek(std::uint64_t offset) {
  if (lseek(fd_, static_cast<off_t>(offset), SEEK_SET) < 0) throw_errno("seek in " + name_);
  packed_begin_ = packed_.size();
}

std::size_t Input::read_some(char* out, std::size_t n) {
  if (unpacker_ == nullptr) {
    if (packed_begin_ == packed_.size()) return read_raw(out, n);
    const std::size_t first = std::min(n, packed_.size() - packed_begin_);
    std::memcpy(out, packed_.data() + packed_begin_, first);
    packed_begin_ += first;
    return first;
  }
  for (;;) {
    if (packed_begin_ == packed_.size() && !ended_) {
      packed_.resize(kPackedBytes);
      packed_.resize(read_raw(packed_.data(), packed_.size()));
      packed_begin_ = 0;
      ended_ = packed_.empty();
    }
    const std::size_t left = packed_.size() - packed_begin_;
    if (left == 0 && unpacker_->complete()) return 0;
    Unpacker::Step step;
    try {
      step = unpacker_->unpack(packed_.data() + packed_begin_, left, out, n);
    } catch (const Error& error) {
      throw Error(ErrorCode::kInvalid, fmt::format("{}: {}", name_, error.what()));
    }
    packed_begin_ += step.used;
    if (step.made > 0) return step.made;
    if (ended_ && step.used == 0 && !unpacker_->complete()) {
      throw Error(
          ErrorCode::kInvalid,
          fmt::format("{}: ends in the middle of its compressed data: it was truncated", name_));
    }
  }
}

}  // namespace motley::wide
