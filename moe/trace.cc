#include "moe/trace.h"

#include <fmt/format.h>
#include <zlib.h>

#include <bit>
#include <cstring>
#include <iterator>

#include "comm/error.h"
#include "comm/json.h"

namespace motley::moe {
namespace {

constexpr std::string_view kFirstLine = "motley moe trace 2\n";
constexpr std::string_view kMark = "rec\n", kEnd = "end\n";
constexpr std::size_t kHead = 4 + 8 + 4 + 4;  // of a record: mark, step, layer, tokens
constexpr std::size_t kCrc = 4;

template <class T>
void put(std::string& out, T value) {
  for (std::size_t byte = 0; byte < sizeof(T); ++byte)
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> 8 * byte & 0xff));
}

template <class T>
T take(std::string_view in, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t byte = 0; byte < sizeof(T); ++byte)
    value |= std::uint64_t{static_cast<unsigned char>(in[at + byte])} << 8 * byte;
  return static_cast<T>(value);
}

std::uint32_t crc_of(std::string_view text) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

void check(const TraceHeader& header, const std::string& path) {
  const bool good = header.experts >= 1 && header.experts <= 32767 && header.layers >= 1 &&
                    header.top_k >= 1 && header.top_k <= header.experts;
  if (good) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe trace {}: {} experts, {} layers, top_k {}. Give at least 1 of each, "
                          "at most 32767 experts, and no larger top_k.",
                          path, header.experts, header.layers, header.top_k));
}

[[noreturn]] void throw_damaged(const std::string& path, std::size_t record, const char* what) {
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe trace {}: record {} {}. Record it anew.", path, record, what));
}

TraceHeader parse_header(const std::string& path, std::string_view line) {
  try {
    const nlohmann::json all = parse_json(line);
    const TraceHeader header{all.at("experts"), all.at("layers"), all.at("top_k")};
    check(header, path);
    return header;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe trace {}: {}. Record it anew.", path, error.what()));
  }
}

bool in_range(const TraceHeader& header, std::int32_t expert) {
  return expert >= kNoExpert && expert < header.experts;
}

// Takes one record from `rest`.
TraceRecord take_record(const std::string& path, std::string_view& rest, const Trace& trace) {
  const std::size_t number = trace.records.size();
  const auto k = static_cast<std::size_t>(trace.header.top_k);
  if (rest.size() < kHead) throw_damaged(path, number, "is cut");
  if (!rest.starts_with(kMark)) throw_damaged(path, number, "does not begin like one");
  const std::size_t choices = k * take<std::uint32_t>(rest, kHead - 4);
  const std::size_t size = kHead + 2 * choices;
  if (rest.size() < size + kCrc) throw_damaged(path, number, "is cut");
  if (take<std::uint32_t>(rest, size) != crc_of(rest.substr(0, size)))
    throw_damaged(path, number, "has another checksum than it says");
  TraceRecord record{
      .step = take<std::int64_t>(rest, 4), .layer = take<std::int32_t>(rest, 12), .expert = {}};
  if (record.layer < 0 || record.layer >= trace.header.layers)
    throw_damaged(path, number, "is of a layer that the header does not have");
  for (std::size_t i = 0; i < choices; ++i) {
    record.expert.push_back(take<std::int16_t>(rest, kHead + 2 * i));
    if (!in_range(trace.header, record.expert.back()))
      throw_damaged(path, number, "has an expert that the header does not have");
  }
  rest.remove_prefix(size + kCrc);
  return record;
}

void read_records(const std::string& path, std::string_view rest, Trace& trace) {
  constexpr std::size_t kEndSize = 4 + 8;
  while (!rest.starts_with(kEnd)) trace.records.push_back(take_record(path, rest, trace));
  const std::size_t number = trace.records.size();
  if (rest.size() != kEndSize + kCrc ||
      take<std::uint32_t>(rest, kEndSize) != crc_of(rest.substr(0, kEndSize)) ||
      take<std::uint64_t>(rest, 4) != number)
    throw_damaged(path, number, "should be the end, which is cut, damaged or of another number");
}

}  // namespace

std::vector<std::int32_t> gathered(Communicator& comm, const Routing& routing) {
  const std::vector<std::int64_t> own = {static_cast<std::int64_t>(routing.expert.size())};
  std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()));
  comm.all_gather(own, counts).wait();
  const std::vector<std::size_t> sizes(counts.begin(), counts.end());
  std::size_t total = 0;
  for (const std::size_t size : sizes) total += size;
  std::vector<std::int32_t> all(total);
  comm.all_gather_v(routing.expert, {all, sizes}).wait();
  if (comm.rank() != 0) all.clear();
  return all;
}

TraceWriter::TraceWriter(std::string path, const TraceHeader& header)
    : path_(std::move(path)), header_(header), out_(path_, std::ios::binary) {
  check(header, path_);
  if (!out_) throw_errno("create " + path_);
  const nlohmann::json line = {
      {"experts", header.experts}, {"layers", header.layers}, {"top_k", header.top_k}};
  std::string text = std::string(kFirstLine) + json_text(line) + '\n';
  put(text, crc_of(text));
  out_ << text;
}

void TraceWriter::write(const TraceRecord& record) {
  const auto k = static_cast<std::size_t>(header_.top_k);
  if (record.layer < 0 || record.layer >= header_.layers || record.expert.size() % k != 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe trace {}: layer {} of {}, {} choices of {} a token. Pass a layer "
                            "of the header, and whole tokens.",
                            path_, record.layer, header_.layers, record.expert.size(), k));
  }
  std::string text(kMark);
  put(text, record.step);
  put(text, static_cast<std::int32_t>(record.layer));
  put(text, static_cast<std::uint32_t>(record.expert.size() / k));
  for (const std::int32_t expert : record.expert) {
    if (!in_range(header_, expert)) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("moe trace {}: expert {} of {}. Pass experts of the header.", path_,
                              expert, header_.experts));
    }
    put(text, static_cast<std::int16_t>(expert));
  }
  put(text, crc_of(text));
  out_ << text;
  ++records_;
}

void TraceWriter::close() {
  std::string text(kEnd);
  put(text, records_);
  put(text, crc_of(text));
  out_ << text;
  out_.close();
  if (!out_) throw_errno("write " + path_);
}

Trace read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_errno("open " + path);
  const std::string content(std::istreambuf_iterator<char>(file), {});
  std::string_view rest = content;
  if (!rest.starts_with(kFirstLine) || rest.find('\n', kFirstLine.size()) == rest.npos) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe trace {}: it does not begin with \"{}\". Pass a file that "
                            "TraceWriter wrote.",
                            path, kFirstLine.substr(0, kFirstLine.size() - 1)));
  }
  const std::size_t lines = rest.find('\n', kFirstLine.size()) + 1;
  if (rest.size() < lines + kCrc ||
      take<std::uint32_t>(rest, lines) != crc_of(rest.substr(0, lines))) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe trace {}: its first lines have another checksum than they say, or "
                            "are cut. Record it anew.",
                            path));
  }
  Trace trace;
  trace.header = parse_header(path, rest.substr(kFirstLine.size(), lines - 1 - kFirstLine.size()));
  rest.remove_prefix(lines + kCrc);
  read_records(path, rest, trace);
  return trace;
}
std::vector<std::int64_t> loads(const TraceHeader& header, const TraceRecord& record) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(header.experts));
  for (const std::int32_t expert : record.expert) {
    if (!in_range(header, expert)) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("moe trace: expert {} of {} in step {}. Pass the record's header.",
                              expert, header.experts, record.step));
    }
    if (expert != kNoExpert) ++loads[static_cast<std::size_t>(expert)];
  }
  return loads;
}

}  // namespace motley::moe
