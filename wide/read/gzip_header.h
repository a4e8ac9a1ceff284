// wide/read/gzip_header.h: what stands before the packed bytes of a member of a gzip file, in
// pieces of any size. ISA-L reads it, too, but takes the checksum of a header in pieces for a wrong
// one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace motley::wide {

class GzipHeader {
 public:
  // Reads on. Returns how many of the n bytes belong to the header: fewer than n only where it is
  // complete. Throws kInvalid where they are none of gzip's.
  std::size_t read(const char* in, std::size_t n);
  bool complete() const noexcept { return part_ == Part::kDone; }

 private:
  enum class Part { kFixed, kExtraSize, kExtra, kName, kComment, kChecksum, kDone };
  void take(std::uint8_t byte);
  void take_fixed(std::uint8_t byte);
  void take_checksum(std::uint8_t byte);
  void next();  // the next part that there is

  Part part_ = Part::kFixed;
  std::size_t at_ = 0;  // in the part
  std::uint8_t flags_ = 0;
  std::uint32_t number_ = 0;  // size of the extra field, or the checksum, as far as it is read
  std::uint32_t checksum_ = 0;
};

}  // namespace motley::wide
