// runtime/checkpoint/reader.h: the content of one complete checkpoint, for one of the workers that
// load it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/format.h"
#include "runtime/file_system.h"
#include "runtime/state.h"

namespace motley::runtime {

// Throws kInvalid for a damaged index, kIo if it cannot be read.
Index read_index(const FileSystem& files, const std::string& folder, std::int64_t number);

// Throws kInvalid, naming the first item in which they differ.
void check_layout(const std::string& path, const Index& index, const State& state);

// The bytes of each item of `state`, nullopt for one that stays as it is (see Checkpointer::load),
// for worker `to.worker` of `to.workers`. Reads one part at a time, and checks each. Throws
// kInvalid for a damaged part, kIo.
using Contents = std::vector<std::optional<std::vector<std::byte>>>;
Contents read_parts(const FileSystem& files, const std::string& folder, const Index& index,
                    const State& state, const Part& to);

}  // namespace motley::runtime
