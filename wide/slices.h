// wide/slices.h: figures for parts of the rows: how a model does for each site, country, hour, …
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wide/auc.h"
#include "wide/dataset.h"

namespace motley::wide {

struct Slice {
  std::string what;  // the name of the feature that its rows share, or its id; "(none)"
  Evaluation result;
};

// The field that `name` names: a column of the recipe, or a number. Throws kInvalid, listing the
// columns there are, if there is none, or if rows have no fields.
std::uint32_t field_named(const Dataset& data, const std::string& name);

// For each row the first id that it has in `field`, or, where it has none, 2^32.
std::vector<std::uint64_t> keys_of(const Dataset& data, std::uint32_t field);

// The `most` largest groups of rows with equal keys, the largest first.
std::vector<Slice> evaluate_slices(std::span<const float> scores, std::span<const float> labels,
                                   std::span<const std::uint64_t> keys, const Dataset& names,
                                   const EvaluateOptions& options, std::size_t most);

}  // namespace motley::wide
