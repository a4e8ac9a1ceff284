#include "wide/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "comm/error.h"
#include "wide/kernel/team.h"
#include "wide/read/gatherer.h"
#include "wide/read/input.h"
#include "wide/read/label.h"
#include "wide/read/pieces.h"

namespace motley::wide {
namespace {

// Threads take pieces of a file in turns, parse them side by side, and add their rows in turns.
class ParallelReading {
 public:
  // Of the file's lines those that begin in `range`, or all.
  ParallelReading(Gatherer& gatherer, Input& input, std::optional<ByteRange> range = {})
      : gatherer_(gatherer), input_(input), range_(range), pieces_(input) {}

  void run(int threads) {
    Team(threads).run([this](int) { work(); });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Piece {
    std::uint64_t turn = 0;
    std::string_view text;
    const TextParser* parser = nullptr;
    std::exception_ptr failure;
  };

  // Nothing at the end.
  std::optional<Piece> take(std::string& buffer) {
    const std::lock_guard lock(input_mutex_);
    if (ended_) return std::nullopt;
    Piece piece;
    try {
      piece.text = pieces_.next(buffer);
      if (piece.text.empty() && turns_taken_ > 0) {
        ended_ = true;
        return std::nullopt;
      }
      ended_ = piece.text.empty();
      if (turns_taken_ == 0) {
        first_bytes_ = piece.text.size();
        guessed_bytes_ = input_.guess_bytes(first_bytes_);
        piece.text = gatherer_.begin_file(input_.name(), piece.text);
        if (range_) {
          piece.text = narrowed(piece.text, buffer);
          first_bytes_ = piece.text.size();
        }
      }
      if (!piece.text.empty()) piece.parser = &gatherer_.parser_for(piece.text);
    } catch (...) {
      piece.failure = std::current_exception();
      ended_ = true;
    }
    piece.turn = turns_taken_++;
    return piece;
  }

  // To the range, of the first piece; what shows the format may stand before or behind it.
  std::string_view narrowed(std::string_view text, std::string& buffer) {
    bool further = false;
    for (std::string_view shown = text; !shown.empty(); shown = pieces_.next(buffer)) {
      gatherer_.parser_for(shown);
      if (gatherer_.knows_format()) break;
      further = true;
    }
    if (further) text = gatherer_.begin_file(input_.name(), pieces_.again(buffer));
    return pieces_.narrow(text, *range_, buffer);
  }

  void add(const Piece& piece, const Rows& rows) {
    if (piece.failure) std::rethrow_exception(piece.failure);
    if (piece.parser != nullptr) gatherer_.add(*piece.parser, rows);
    if (piece.turn > 0) return;
    using enum Gatherer::SizeOfText;
    gatherer_.reserve(first_bytes_, bytes(), kKnown);
    gatherer_.reserve(first_bytes_, guessed_bytes_, kGuessed);
  }

  std::uint64_t bytes() const { return range_ ? range_->end - range_->begin : input_.size_bytes(); }

  void work() {
    std::string buffer;
    Rows rows;
    while (const std::optional<Piece> piece = take(buffer)) {
      std::exception_ptr failure;
      try {
        rows.clear();
        if (piece->parser != nullptr) piece->parser->parse(piece->text, rows);
      } catch (...) {
        failure = std::current_exception();
      }
      std::unique_lock lock(turn_mutex_);
      turn_changed_.wait(lock, [&] { return turn_ == piece->turn; });
      try {
        if (failure && !failure_) std::rethrow_exception(failure);
        if (!failure_) add(*piece, rows);
      } catch (...) {
        failure_ = std::current_exception();
      }
      ++turn_;
      turn_changed_.notify_all();
      if (failure_) return;
    }
  }

  Gatherer& gatherer_;
  Input& input_;
  std::optional<ByteRange> range_;
  std::mutex input_mutex_;
  Pieces pieces_;
  std::uint64_t turns_taken_ = 0;
  std::uint64_t first_bytes_ = 0;    // of the first piece
  std::uint64_t guessed_bytes_ = 0;  // of all that it is the first of, where they are packed
  bool ended_ = false;
  std::mutex turn_mutex_;
  std::condition_variable turn_changed_;
  std::uint64_t turn_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

ReadOptions alike(const std::string& recipe, ReadOptions options) {
  if (recipe.empty()) return options;
  const Schema schema = from_recipe(recipe);
  options.format = schema.format;
  options.bits = schema.bits;
  options.delimiter = schema.delimiter;
  options.header = schema.header;
  options.columns = schema.columns;
  return options;
}

Dataset read_file(const std::string& path, const ReadOptions& options) {
  return read_files({path}, options);
}

Dataset read_files(const std::vector<std::string>& paths, const ReadOptions& options) {
  if (paths.empty()) throw Error(ErrorCode::kInvalid, "read: there is no file to read");
  Gatherer gatherer(options);
  for (const std::string& path : paths) {
    try {
      Input input(path);
      ParallelReading(gatherer, input).run(options.threads);
    } catch (const std::bad_alloc&) {
      throw Error(ErrorCode::kInvalid, path + ": does not fit in memory");
    }
  }
  return gatherer.take();
}

namespace {

// Where part i of n begins among `total`.
std::uint64_t part_begin(std::uint64_t total, int i, int n) {
  const auto part = static_cast<std::uint64_t>(i), parts = static_cast<std::uint64_t>(n);
  return total / parts * part + total % parts * part / parts;
}

Dataset read_range(const std::vector<std::string>& paths, const ReadOptions& options,
                   const ByteRange& range) {
  Gatherer gatherer(options);
  std::uint64_t at = 0;  // where the file begins among all
  for (const std::string& path : paths) {
    Input input(path);
    const std::uint64_t size = input.size_bytes();
    const auto here = [&](std::uint64_t byte) { return std::clamp(byte, at, at + size) - at; };
    const ByteRange of_file{here(range.begin), here(range.end)};
    // The first file says how all are read.
    if (of_file.begin < of_file.end || at == 0)
      ParallelReading(gatherer, input, of_file).run(options.threads);
    at += size;
  }
  return gatherer.take_any();
}

}  // namespace

bool can_be_read_in_parts(const std::vector<std::string>& paths) {
  return std::ranges::all_of(paths, [](const std::string& path) {
    std::error_code none;
    return std::filesystem::is_regular_file(path, none) && Input(path).size_bytes() > 0;
  });
}

Dataset read_part(const std::vector<std::string>& paths, int part, int parts,
                  const ReadOptions& options) try {
  std::uint64_t total = 0;
  for (const std::string& path : paths) total += Input(path).size_bytes();
  return read_range(paths, options,
                    {part_begin(total, part, parts), part_begin(total, part + 1, parts)});
} catch (const BadLine&) {
  // A part does not know the numbers of its lines.
  if (part > 0) read_files(paths, options);
  throw;
}

struct RowStream::State {
  std::vector<std::string> paths;
  Gatherer gatherer;
  std::size_t next_path = 0;
  std::unique_ptr<Input> input;
  std::unique_ptr<Pieces> pieces;
  bool first = false;  // the file's first piece comes next
  std::string buffer;
  Rows rows;
};

RowStream::RowStream(std::vector<std::string> paths, const ReadOptions& options)
    : state_(new State{.paths = std::move(paths), .gatherer = Gatherer(options)}) {}
RowStream::~RowStream() = default;

std::optional<Dataset> RowStream::next(std::size_t rows) {
  State& s = *state_;
  while (s.gatherer.rows() < rows) {
    if (s.input == nullptr) {
      if (s.next_path == s.paths.size()) break;
      s.input = std::make_unique<Input>(s.paths[s.next_path++]);
      s.pieces = std::make_unique<Pieces>(*s.input);
      s.first = true;
    }
    std::string_view text = s.pieces->next(s.buffer);
    if (text.empty()) {
      s.input.reset();
      continue;
    }
    if (s.first) text = s.gatherer.begin_file(s.input->name(), text);
    s.first = false;
    if (text.empty()) continue;
    const TextParser& parser = s.gatherer.parser_for(text);
    s.rows.clear();
    parser.parse(text, s.rows);
    const bool first_rows = s.gatherer.rows() == 0;
    s.gatherer.add(parser, s.rows);
    const std::size_t come = s.gatherer.rows();  // what reaches `rows` may be as many again
    if (first_rows && come > 0 && come < rows) s.gatherer.reserve_rows(rows + come);
  }
  if (s.gatherer.rows() == 0) return std::nullopt;
  return s.gatherer.take();
}

Dataset parse_text(std::string_view text, const std::string& source_name,
                   const ReadOptions& options) {
  if (text.starts_with("\x1f\x8b")) {
    throw Error(ErrorCode::kInvalid,
                source_name + ":1: is compressed with gzip. Read it as a file");
  }
  std::string padded;
  padded.reserve(text.size() + 1 + kPadding);
  padded = text;
  if (!text.ends_with('\n')) padded += '\n';
  const std::size_t size = padded.size();
  padded.resize(size + kPadding);
  Gatherer gatherer(options);
  const std::string_view lines = gatherer.begin_file(source_name, {padded.data(), size});
  if (!lines.empty()) {
    const TextParser& parser = gatherer.parser_for(lines);
    Rows rows;
    parser.parse(lines, rows);
    gatherer.add(parser, rows);
  }
  return gatherer.take();
}

void read_weights(const std::string& path, Dataset& data) {
  Input input(path);
  Pieces pieces(input);
  std::string buffer;
  std::uint64_t line = 0;
  data.weights.clear();
  for (std::string_view text; !(text = pieces.next(buffer)).empty();) {
    while (!text.empty()) {
      std::string_view token = text.substr(0, text.find('\n'));
      text.remove_prefix(token.size() + 1);
      if (token.ends_with('\r')) token.remove_suffix(1);
      ++line;
      try {
        const float weight = float_of(token, {token, 1}, "weight");
        if (weight < 0) throw bad_token({token, 1}, "is below 0");
        data.weights.push_back(weight);
      } catch (const Error& error) {
        throw Error(ErrorCode::kInvalid,
                    fmt::format("{}:{}: {}", input.name(), line, error.what()));
      }
    }
  }
  if (data.weights.size() == data.rows()) return;
  throw Error(ErrorCode::kInvalid, fmt::format("{}: has {} weights, but there are {} rows", path,
                                               data.weights.size(), data.rows()));
}

}  // namespace motley::wide
