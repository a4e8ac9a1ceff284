// What says where ranks meet: meeting files, and the text of Options::controller and ::ports. It is
// read, or refused as invalid; what is read of a file is written and read back equal.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "comm/bootstrap/endpoint.h"
#include "comm/bootstrap/meeting_file.h"
#include "comm/bootstrap/rendezvous_url.h"
#include "comm/error.h"
#include "test/support/fuzz.h"

namespace motley::test {
namespace {

// True if `read` does not throw; it may throw that its text is invalid, and nothing else.
template <class Read>
bool reads(Read&& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kInvalid);
    return false;
  }
}

// A file in memory alone, with its path.
std::string file_of(std::string_view text) {
  static const int file = memfd_create("meeting", 0);
  require(ftruncate(file, 0) == 0);
  require(pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  return fmt::format("/proc/self/fd/{}", file);
}

}  // namespace
}  // namespace motley::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  const std::string text(reinterpret_cast<const char*>(data), size);
  test::reads([&] {
    const auto place = read_meeting_file(test::file_of(text));
    test::require(place && !place->addresses.empty());
    const std::string path = fmt::format("/dev/shm/motley-fuzz-{}", getpid());
    write_meeting_file(path, *place);
    const auto again = read_meeting_file(path);
    unlink(path.c_str());
    test::require(again && again->token == place->token && again->addresses == place->addresses);
  });
  test::reads([&] {
    const RendezvousUrl url = RendezvousUrl::parse(text);
    const bool listens = url.scheme != RendezvousUrl::kFile;
    test::require(!listens || (url.endpoint.port >= 0 && url.endpoint.port < 65536));
  });
  test::reads([&] {
    const PortRange range = PortRange::parse(text);
    test::require(range.low >= 0 && range.low <= range.high && range.high < 65536);
  });
  return 0;
}
