#include "wide/read_cached.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "comm/error.h"
#include "wide/cache.h"
#include "wide/file/checksum.h"
#include "wide/file/random_reader.h"
#include "wide/file/whole_file.h"
#include "wide/kernel/team.h"

namespace motley::wide {
namespace {

// Of a file's bytes, in pieces that fit into a cache of the processor.
std::uint64_t sum_of(const std::string& path, int threads) {
  constexpr std::size_t kPiece = std::size_t{1} << 18;
  std::error_code unknown;  // which reading tells
  if (std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown)) {
    throw Error(ErrorCode::kInvalid,
                path +
                    ": is no regular file, so that nobody could tell whether a cache is of the "
                    "same rows. Read it without one");
  }
  const RandomReader file(path);
  std::vector<std::uint64_t> sums(file.size() / kPiece + 1);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  Team(threads).run([&](int) {
    try {
      std::vector<char> piece(kPiece);
      for (std::size_t i = next++; i < sums.size(); i = next++) {
        sums[i] = checksum(piece.data(), file.get(piece.data(), kPiece, i * kPiece));
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
  return checksum(sums.data(), sums.size() * sizeof sums[0]);
}

// What decides whether a cache is of these files and options.
std::uint64_t source_of(const std::vector<std::string>& paths, const ReadOptions& options) {
  std::string text = fmt::format(
      "{} {} {} {} {} {}", options.format ? static_cast<int>(*options.format) : -1,
      static_cast<int>(options.labels), options.bits, static_cast<int>(options.delimiter),
      static_cast<int>(options.header), to_text(options.columns));
  for (const std::string& path : paths) {
    text += fmt::format("\n{}", sum_of(path, options.threads));
  }
  return checksum(text.data(), text.size()) | 1;  // never 0
}

// Reading the cache with what it was made of, and what it has to be made of, side by side: the
// source is as a rule larger. Another run may replace the cache meanwhile.
struct Look {
  std::optional<std::uint64_t> made_of;  // nothing: there is none
  std::uint64_t source = 0;
  Dataset cache;
  std::exception_ptr unread;  // why there is none of it

  // Throws what reading it did.
  Dataset take() {
    if (unread) std::rethrow_exception(unread);
    return std::move(cache);
  }
};

Look look_at(const std::vector<std::string>& paths, const std::string& path,
             const ReadOptions& options) {
  Look look{.made_of = source_of_cache(path), .cache = {}, .unread = {}};
  std::exception_ptr failure;
  Team(look.made_of ? 2 : 1).run([&](int thread) {
    std::exception_ptr& failed = thread == 0 ? failure : look.unread;
    try {
      if (thread == 0) look.source = source_of(paths, options);
      if (thread == 1) look.cache = load_cache(path, options, {}, &*look.made_of);
    } catch (...) {
      failed = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
  return look;
}

}  // namespace

Dataset read_cached(const std::vector<std::string>& paths, const std::string& path,
                    const ReadOptions& options, const LogSink& log) {
  if (options.names) return read_files(paths, options);
  std::error_code unknown;  // which writing tells
  if (std::filesystem::exists(path, unknown) && !is_cache(path)) {
    throw Error(ErrorCode::kInvalid,
                path + ": is in the place of the cache, but is none. Move it, or read without one");
  }
  // Before the rows: files that change in between have a cache that is of no files.
  Look look = look_at(paths, path, options);
  try {
    if (look.made_of == look.source) return look.take();
  } catch (const BadCache& error) {
    if (log) log(LogLevel::kWarning, fmt::format("{}. It is made anew", error.what()));
  }
  look.cache = {};
  WholeFile::check(path);
  ReadOptions whole = options;
  whole.fields = true;
  Dataset data = read_files(paths, whole);
  save_cache(data, path, look.source);
  if (!options.fields) data.fields = {};
  return data;
}

}  // namespace motley::wide
