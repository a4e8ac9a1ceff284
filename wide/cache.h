// wide/cache.h: data sets as binary files, which are read several times as fast as text.
//
//   save_cache(read_file("train.txt"), "train.cache");
//   Dataset train = load_cache("train.cache");
//   Dataset same = read_cached({"train.txt"}, "train.txt.cache");   // makes it where need be
//
// A cache is versioned, and checksummed in pieces, which threads read side by side. It leaves out
// what says nothing: values that are all 1, rows of one length, fields that are alike in all rows.
// Without ReadOptions::fields their part of the file is not read.
#pragma once

#include <string>
#include <vector>

#include "wide/dataset.h"
#include "wide/reader.h"

namespace motley::wide {

// Replaces the file whole or not at all. `source` says what the rows were made of. Throws kIo.
void save_cache(const Dataset& data, const std::string& path, std::uint64_t source = 0);

// Whether the file is there and begins as caches do.
bool is_cache(const std::string& path);

// Throws kIo; kInvalid for a file that is foreign, truncated, damaged or of another version, that
// exceeds the limit of memory, or whose labels are not of the kind asked for. Options of formats
// are not looked at.
// `room`: a data set whose memory the new one takes over.
Dataset load_cache(const std::string& path, const ReadOptions& options = {}, Dataset room = {});

// read_files(), by way of the cache at `path`: used if it was made of the same files (by name, size
// and time of change) with the same options by the same version, else made. `names` are not in it.
Dataset read_cached(const std::vector<std::string>& paths, const std::string& path,
                    const ReadOptions& options = {});

}  // namespace motley::wide
