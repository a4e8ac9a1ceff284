// wide/cache.h: data sets as binary files, which are read several times as fast as text.
//
//   save_cache(read_file("train.txt"), "train.cache");
//   Dataset train = load_cache("train.cache");
//
// A cache is versioned, and checksummed in pieces, which threads read side by side. It leaves out
// what says nothing: values that are all 1, rows of one length, fields that are alike in all rows.
// Without ReadOptions::fields their part of the file is not read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/error.h"
#include "wide/dataset.h"
#include "wide/reader.h"

namespace motley::wide {

// Replaces the file whole or not at all. `source` says what the rows were made of. Throws kIo.
void save_cache(const Dataset& data, const std::string& path, std::uint64_t source = 0);

// Whether the file is there and begins as caches do.
bool is_cache(const std::string& path);

// What save_cache() was told; nothing where there is no cache of this version.
std::optional<std::uint64_t> source_of_cache(const std::string& path);

// kInvalid: a cache is foreign, truncated, damaged or of another version.
class BadCache : public Error {
 public:
  using Error::Error;
};

// Throws kIo; BadCache, also where the labels are not of the kind asked for; kInvalid where it
// exceeds the limit of memory. Options of formats are not looked at.
// `room`: a data set whose memory the new one takes over. `source`: told what save_cache() was
// told.
Dataset load_cache(const std::string& path, const ReadOptions& options = {}, Dataset room = {},
                   std::uint64_t* source = nullptr);

}  // namespace motley::wide
