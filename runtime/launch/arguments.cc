#include "runtime/launch/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "comm/error.h"

namespace motley::runtime {
namespace {

[[noreturn]] void reject(const std::string& what) {
  throw Error(ErrorCode::kInvalid, fmt::format("motley-run: {} See motley-run --help.", what));
}

template <class T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

int parse_size(const std::string& name, std::string_view text) {
  const auto size = parse<int>(text);
  if (!size || *size < 1) {
    reject(fmt::format("{} is \"{}\". Use the number of ranks, 1 or more.", name, text));
  }
  return *size;
}

Duration parse_seconds(const std::string& name, std::string_view text, double low) {
  const auto number = parse<double>(text);
  if (!number || !(*number >= low && *number <= 1e6)) {
    reject(fmt::format("{} is \"{}\". Use seconds in [{:g}, 1e6].", name, text, low));
  }
  return seconds(*number);
}

// "3:4" or "3:4,2:1.5".
void parse_slow(std::string_view text, std::map<int, double>& slow) {
  while (true) {
    const std::string_view item = text.substr(0, text.find(','));
    const std::size_t colon = std::min(item.find(':'), item.size());
    const auto rank = parse<int>(item.substr(0, colon));
    const auto factor = parse<double>(item.substr(std::min(colon + 1, item.size())));
    if (!rank || !factor) {
      reject(fmt::format("--slow has \"{}\". Use rank:factor, as in --slow 3:4.", item));
    }
    slow[*rank] = *factor;
    if (item.size() == text.size()) return;
    text.remove_prefix(item.size() + 1);
  }
}

std::string parse_transport(const std::string& text) {
  for (const char* known : {"auto", "shm", "ucx"}) {
    if (text == known) return text;
  }
  reject(fmt::format("--transport is \"{}\". Use auto, shm or ucx.", text));
}

class Parser {
 public:
  explicit Parser(const std::vector<std::string>& words) : words_(words) {}

  Arguments run() {
    while (next_ < words_.size() && result_.action == Action::kLaunch) {
      const std::string& word = words_[next_];
      if (word.size() < 2 || word.front() != '-') break;
      ++next_;
      if (word == "--") break;
      option(word);
    }
    result_.launch.command.assign(words_.begin() + static_cast<std::ptrdiff_t>(next_),
                                  words_.end());
    if (result_.action == Action::kLaunch && !has_size_) reject("how many ranks? Add -n N.");
    return result_;
  }

 private:
  void option(const std::string& word) {
    const std::size_t equals = word.starts_with("--") ? word.find('=') : word.npos;
    std::string name = word.substr(0, equals);
    std::replace(name.begin() + 2, name.end(), '-', '_');
    const auto value = [&] {
      if (equals != word.npos) return word.substr(equals + 1);
      if (next_ == words_.size()) reject(fmt::format("{} needs a value.", name));
      return words_[next_++];
    };
    LaunchOptions& launch = result_.launch;
    if (name == "-h" || name == "--help") {
      result_.action = Action::kHelp;
    } else if (name == "--version") {
      result_.action = Action::kVersion;
    } else if (name == "-n" || name == "-np") {
      launch.size = parse_size(name, value());
      has_size_ = true;
    } else if (name == "--slow") {
      parse_slow(value(), launch.slow);
    } else if (name == "--transport") {
      launch.transport = parse_transport(value());
    } else if (name == "--iface") {
      launch.interface = value();
    } else if (name == "--timeout") {
      launch.timeout = parse_seconds(name, value(), 1e-3);
    } else if (name == "--grace") {
      launch.grace = parse_seconds(name, value(), 0);
    } else if (name == "--elastic" && equals == word.npos) {
      launch.when_lost = WhenLost::kGoOn;
    } else if (name == "--standby" && equals == word.npos) {
      launch.standby = true;
    } else if (name == "--plain" && equals == word.npos) {
      launch.labels = Labels::kNone;
    } else if (name == "--controller_program") {
      launch.controller_program = value();
    } else {
      reject(fmt::format("{} is not an option.", word));
    }
  }

  const std::vector<std::string>& words_;
  std::size_t next_ = 0;
  bool has_size_ = false;
  Arguments result_;
};

}  // namespace

Arguments parse_arguments(const std::vector<std::string>& words) { return Parser(words).run(); }

std::string help_text() {
  return R"(motley-run -n N [options] -- program [arguments]
Runs N copies of a program on this host as the ranks of one job, and a controller for them.

  -n N                  number of ranks
  --slow R:F[,R:F]      rank R computes F times slower (for experiments)
  --transport T         auto, shm or ucx
  --iface I             network of ucx: a device (eth1) or a subnet (10.1.0.0/16)
  --timeout S           seconds that a call of the library may take
  --elastic             when a rank dies, the others go on; 0 if any rank ends with 0. Named
                        after torchrun's and Horovod's word for jobs that may lose workers.
                        For programs that survive it, as with partial_reduce
  --standby             a second controller, which takes over if the first dies
  --grace S             otherwise they get SIGTERM S seconds after it (5), then SIGKILL
  --plain               do not put the rank before each line of output
  --controller_program P  path of motley-controller, if it is not beside motley-run
  --version, --help

Each line of output is preceded by its rank, unless --plain. Rank 0 reads standard input unless
that is a terminal. INT, TERM, HUP, USR1 and USR2 are passed on; a second INT kills the ranks.
The exit code is 0 if all ranks end with 0, else that of the first that failed (128 + its
signal); 2 for a mistake above. Other options are variables of the environment, such as
MOTLEY_ALGORITHM and MOTLEY_LEASE; comm/options.h lists them.

  motley-run -n 4 --slow 3:4 -- motley-wide train train.txt -m fm
)";
}

}  // namespace motley::runtime
