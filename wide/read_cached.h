// wide/read_cached.h: text that is read once, and from then on as a cache (cache.h).
//
//   Dataset train = read_cached({"train.txt"}, "train.txt.cache");   // makes it where need be
#pragma once

#include <string>
#include <vector>

#include "comm/log.h"
#include "wide/dataset.h"
#include "wide/reader.h"

namespace motley::wide {

// read_files(), by way of the cache at `path`: used if it was made of the same bytes with the same
// options by the same version, whatever names and times say, else made. For this the files are read
// each time, which takes a small part of what parsing them does, while another thread reads the
// cache, which is let go of where it is of others. A cache that is damaged is made
// anew, and `log` is told. `names` are not in it. Throws as read_files() does; kIo if the cache
// cannot be written; kInvalid where another file is in its place, or one of `paths` is a pipe.
Dataset read_cached(const std::vector<std::string>& paths, const std::string& path,
                    const ReadOptions& options = {}, const LogSink& log = {});

}  // namespace motley::wide
