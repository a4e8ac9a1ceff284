#include "comm/cli/perf/subject.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace motley::perf {
namespace {

class PrivateStorage final : public Storage {
 public:
  explicit PrivateStorage(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(std::aligned_alloc(kPage, rounded(bytes)))) {
    if (data_ == nullptr) throw std::bad_alloc();
    std::fill_n(data_.get(), bytes, std::byte{});
  }
  Bytes bytes() override { return {data_.get(), bytes_}; }

 private:
  static constexpr std::size_t kPage = 4096;
  static std::size_t rounded(std::size_t bytes) {
    return (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  }
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace

std::unique_ptr<Storage> private_storage(std::size_t bytes) {
  return std::make_unique<PrivateStorage>(bytes);
}

}  // namespace motley::perf
