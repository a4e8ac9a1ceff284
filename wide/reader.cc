#include "wide/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "comm/error.h"

namespace motley::wide {
namespace {

constexpr std::uint64_t kLargestIndex = 0xffffffffu;
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Text as it can be shown in a message: printable and short.
std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out + (text.size() > kShown ? "…\"" : "\"");
}

enum class Number { kOk, kMalformed, kNotFinite };

// The number that is exactly the text [p, end).
Number parse_number(const char* p, const char* end, double& out) {
  if (p != end && *p == '+') {
    ++p;
    if (p != end && *p == '-') return Number::kMalformed;
  }
  // Up to 15 digits and no exponent: exact in a double, and so is the power of ten it is divided
  // by.
  static constexpr double kTens[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  const char* q = p != end && *p == '-' ? p + 1 : p;
  std::uint64_t mantissa = 0;
  int digits = 0;
  int decimals = 0;
  for (; q != end && is_digit(*q) && digits < 15; ++q, ++digits) {
    mantissa = mantissa * 10 + static_cast<std::uint64_t>(*q - '0');
  }
  if (q != end && *q == '.') {
    for (++q; q != end && is_digit(*q) && digits < 15; ++q, ++digits, ++decimals) {
      mantissa = mantissa * 10 + static_cast<std::uint64_t>(*q - '0');
    }
  }
  if (q == end && digits > 0) {
    out = static_cast<double>(mantissa) / kTens[decimals];
    if (*p == '-') out = -out;
    return Number::kOk;
  }
  const auto [stop, error] = std::from_chars(p, end, out);
  if (error == std::errc::invalid_argument || stop != end) return Number::kMalformed;
  if (error == std::errc::result_out_of_range) {  // reported for both ends of the range
    const char* const exponent = std::find_if(p, end, [](char c) { return c == 'e' || c == 'E'; });
    const bool tiny = end - exponent > 1 && exponent[1] == '-';
    out = 0;
    return tiny ? Number::kOk : Number::kNotFinite;
  }
  return std::isfinite(out) ? Number::kOk : Number::kNotFinite;
}

// Reads the digits at p and moves p behind them; false if there is none. Saturates.
bool parse_digits(const char*& p, const char* end, std::uint64_t& out) {
  const char* const start = p;
  out = 0;
  for (; p != end && is_digit(*p); ++p) {
    if (out > kLargestIndex) continue;  // already too large: the caller refuses it
    out = out * 10 + static_cast<std::uint64_t>(*p - '0');
  }
  return p != start;
}

// Lines in, Dataset out.
class RowParser {
 public:
  RowParser(std::string source_name, const ReadOptions& options)
      : name_(std::move(source_name)), options_(options) {
    format_known_ = options.format.has_value();
    if (format_known_) data_.format = *options.format;
  }

  // `text` without its newline.
  void add_line(std::string_view text) {
    ++line_;
    begin_ = text.data();
    if (line_ == 1) text = check_start(text);
    if (std::memchr(text.data(), 0, text.size()) != nullptr) {
      fail("holds a NUL byte, so this is not a text file");
    }
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    text = text.substr(0, text.find('#'));
    const char* p = text.data();
    const char* const end = p + text.size();
    while (p != end && is_blank(*p)) ++p;
    if (p == end) return;
    add_label(p, end);
    for (;;) {
      while (p != end && is_blank(*p)) ++p;
      if (p == end) break;
      const char* stop = p;
      while (stop != end && !is_blank(*stop)) ++stop;
      add_feature(p, stop);
      p = stop;
    }
    end_row();
  }

  Dataset finish() {
    if (data_.rows() == 0) {
      throw Error(ErrorCode::kInvalid, fmt::format("{}: holds no rows", name_));
    }
    return std::move(data_);
  }

  // Makes room for a file of which the first `parsed` of `total` bytes have been added.
  void reserve(std::uint64_t parsed, std::uint64_t total) {
    const double scale =
        static_cast<double>(total) / static_cast<double>(std::max(parsed, std::uint64_t{1}));
    const double rows = static_cast<double>(data_.rows()) * scale * 1.02 + 1;
    const double entries = static_cast<double>(data_.entries()) * scale * 1.02 + 1;
    const bool libffm = data_.format == Format::kLibffm;
    const double bytes = rows * 12 + entries * (libffm ? 12 : 8);
    const double limit = static_cast<double>(
        options_.memory_limit_bytes != 0 ? options_.memory_limit_bytes
                                         : static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                               static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE)));
    if (bytes > limit) {
      throw Error(
          ErrorCode::kInvalid,
          fmt::format("{}: about {:.0f} rows with {:.0f} entries need {:.2f} GiB of memory, "
                      "but {:.2f} GiB is the limit. Use fewer rows, or a larger machine",
                      name_, rows, entries, bytes / (1 << 30), limit / (1 << 30)));
    }
    data_.labels.reserve(static_cast<std::size_t>(rows));
    data_.row_begin.reserve(static_cast<std::size_t>(rows) + 1);
    data_.ids.reserve(static_cast<std::size_t>(entries));
    data_.values.reserve(static_cast<std::size_t>(entries));
    if (libffm) data_.fields.reserve(static_cast<std::size_t>(entries));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kInvalid, fmt::format("{}:{}: {}", name_, line_, what));
  }
  [[noreturn]] void fail(const char* token, const char* stop, const std::string& what) const {
    fail(fmt::format("{} at column {} {}", quoted({token, static_cast<std::size_t>(stop - token)}),
                     token - begin_ + 1, what));
  }

  std::string_view check_start(std::string_view text) const {
    if (text.substr(0, 2) == "\x1f\x8b") {
      fail("is compressed with gzip. Unpack it first");
    }
    if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);
    return text;
  }

  float number(const char* token, const char* stop, const char* first, const char* what) const {
    double value = 0;
    const Number result = first == stop ? Number::kMalformed : parse_number(first, stop, value);
    if (result == Number::kMalformed) {
      fail(token, stop, fmt::format("needs a number as its {}", what));
    }
    if (result == Number::kNotFinite || std::abs(value) > FLT_MAX) {
      fail(token, stop, fmt::format("has a {} that is not finite or exceeds 3.4e38", what));
    }
    return static_cast<float>(value);
  }

  void add_label(const char*& p, const char* end) {
    const char* stop = p;
    while (stop != end && !is_blank(*stop)) ++stop;
    const bool feature = std::find(p, stop, ':') != stop;
    if (feature && options_.labels == Labels::kOptional) {
      data_.labels.push_back(0);
      return;
    }
    if (feature) fail(p, stop, "is a feature where the row's label is expected");
    float label = number(p, stop, p, "label");
    if (options_.labels == Labels::kOptional) label = 0;
    if (options_.labels == Labels::kBinary) {
      if (label != 0 && label != 1 && label != -1) {
        fail(p, stop, "is no label of two classes. Labels are 0 and 1, or -1 and 1");
      }
      if (label != 1) {
        if (negative_line_ == 0) {
          negative_line_ = line_;
          negative_ = label;
        } else if (negative_ != label) {
          fail(p, stop,
               fmt::format("differs from the label {} on line {}. Labels are 0 and 1, or "
                           "-1 and 1, not both",
                           negative_, negative_line_));
        }
        label = 0;
      }
    }
    data_.labels.push_back(label);
    p = stop;
  }

  std::uint32_t index(const char* token, const char* stop, const char*& p, const char* what) const {
    const char* const first = p;
    std::uint64_t value = 0;
    const bool digits = parse_digits(p, stop, value);
    if (!digits || p == stop || *p != ':') {
      const bool negative = !digits && first != stop && *first == '-';
      fail(token, stop,
           fmt::format("{}. Expected {}",
                       negative ? fmt::format("has a negative {}", what)
                                : fmt::format("needs a whole number and ':' as its {}", what),
                       data_.format == Format::kLibffm ? "field:index:value" : "index:value"));
    }
    if (value > kLargestIndex) {
      fail(
          token, stop,
          fmt::format("has the {} {}, which exceeds the limit {} (2^32 - 1)", what,
                      std::string_view(first, static_cast<std::size_t>(p - first)), kLargestIndex));
    }
    ++p;
    return static_cast<std::uint32_t>(value);
  }

  void add_feature(const char* token, const char* stop) {
    if (!format_known_) {
      format_known_ = true;
      data_.format = std::count(token, stop, ':') >= 2 ? Format::kLibffm : Format::kLibsvm;
    }
    const char* p = token;
    if (data_.format == Format::kLibffm) data_.fields.push_back(index(token, stop, p, "field"));
    data_.ids.push_back(index(token, stop, p, "index"));
    if (p == stop || *p != '1' || p + 1 != stop) {
      if (std::find(p, stop, ':') != stop) {
        fail(token, stop, fmt::format("has too many ':' for a {} file", name(data_.format)));
      }
      data_.values.push_back(number(token, stop, p, "value"));
    } else {
      data_.values.push_back(1);
    }
  }

  // Entries of one row as keys whose equality is a duplicate.
  std::uint64_t key(std::size_t i) const {
    const std::uint64_t field = data_.format == Format::kLibffm ? data_.fields[i] : 0;
    return field << 32 | data_.ids[i];
  }

  void end_row() {
    const std::size_t begin = data_.row_begin.back();
    const std::size_t end = data_.entries();
    bool ascending = true;
    for (std::size_t i = begin + 1; i < end; ++i) ascending = ascending && key(i - 1) < key(i);
    if (!ascending) {
      keys_.clear();
      for (std::size_t i = begin; i < end; ++i) keys_.push_back(key(i));
      std::sort(keys_.begin(), keys_.end());
      const auto twice = std::adjacent_find(keys_.begin(), keys_.end());
      if (twice != keys_.end()) {
        fail(fmt::format(
            "index {} appears twice in this row{}. Keep one of them", *twice & kLargestIndex,
            data_.format == Format::kLibffm ? fmt::format(" in field {}", *twice >> 32) : ""));
      }
    }
    data_.row_begin.push_back(end);
  }

  std::string name_;
  ReadOptions options_;
  Dataset data_;
  bool format_known_ = false;
  std::uint64_t line_ = 0;
  const char* begin_ = nullptr;      // of the current line, for columns
  std::uint64_t negative_line_ = 0;  // where the negative class was first seen, and as what
  float negative_ = 0;
  std::vector<std::uint64_t> keys_;
};

// Adds the complete lines of `text`; returns how many bytes they take.
std::size_t add_lines(RowParser& parser, std::string_view text) {
  std::size_t begin = 0;
  for (;;) {
    if (begin == text.size()) return begin;
    const void* newline = std::memchr(text.data() + begin, '\n', text.size() - begin);
    if (newline == nullptr) return begin;
    const auto end = static_cast<std::size_t>(static_cast<const char*>(newline) - text.data());
    parser.add_line(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

// An open file; closes itself.
class File {
 public:
  explicit File(const std::string& path)
      : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw_errno("open " + path);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(fd_); }

  // 0 for a pipe, whose size is unknown.
  std::uint64_t size_bytes() const {
    struct stat info {};
    if (fstat(fd_, &info) != 0) throw_errno("fstat " + path_);
    return S_ISREG(info.st_mode) ? static_cast<std::uint64_t>(info.st_size) : 0;
  }
  // Bytes read into `out`; 0 at the end.
  std::size_t read_some(char* out, std::size_t n) {
    for (;;) {
      const ssize_t got = ::read(fd_, out, n);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno != EINTR) throw_errno("read " + path_);
    }
  }

 private:
  std::string path_;
  int fd_;
};

Dataset read_blocks(File& file, RowParser& parser) {
  const std::uint64_t total = file.size_bytes();
  std::string buffer;      // an unfinished line, then fresh bytes
  std::size_t filled = 0;  // of `buffer`
  std::uint64_t parsed = 0;
  for (bool first = true;;) {
    if (buffer.size() < filled + kBlockBytes)
      buffer.resize(std::max(2 * filled, filled + kBlockBytes));
    const std::size_t got = file.read_some(buffer.data() + filled, buffer.size() - filled);
    if (got == 0) break;
    const std::string_view fresh(buffer.data() + filled, got);
    filled += got;
    if (fresh.find('\n') == std::string_view::npos) continue;  // a line longer than a block
    const std::size_t used = add_lines(parser, {buffer.data(), filled});
    parsed += used;
    std::memmove(buffer.data(), buffer.data() + used, filled - used);
    filled -= used;
    if (first && total > parsed) parser.reserve(parsed, total);
    first = false;
  }
  if (filled > 0) parser.add_line({buffer.data(), filled});
  return parser.finish();
}

}  // namespace

Dataset read_file(const std::string& path, const ReadOptions& options) {
  File file(path);
  RowParser parser(path, options);
  try {
    return read_blocks(file, parser);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kInvalid, fmt::format("{}: does not fit in memory", path));
  }
}

Dataset parse_text(std::string_view text, const std::string& source_name,
                   const ReadOptions& options) {
  RowParser parser(source_name, options);
  const std::size_t used = add_lines(parser, text);
  if (used < text.size()) parser.add_line(text.substr(used));
  return parser.finish();
}

}  // namespace motley::wide
