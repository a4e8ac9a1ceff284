// wide/train/settle.h: what training does with its options and data before it begins, and in which
// order rows go; the same for all kinds of runs.
#pragma once

#include <cstdint>
#include <vector>

#include "wide/kernel/flow.h"
#include "wide/trainer.h"

namespace motley::wide {

// What of the training data counts, and how much. Throws kInvalid where no rows are left.
Dataset chosen(Dataset train, const TrainOptions& options);
// The same of a part of the data, of which `first` rows stand before it; maybe none is left.
Dataset chosen_part(Dataset part, std::uint64_t first, const TrainOptions& options);
UpdateOptions update_options(const TrainOptions& options);

// Targets far from 0 would take the bias an epoch to reach. `shared`: what all samples share.
void begin_at_mean(const ModelOptions& model, const Dataset& train, float* shared);
void begin_at_mean(const ModelOptions& model, double mean_label, float* shared);
// FTRL keeps z, of which the weight follows: z of the weights as they begin. Of other optimizers
// nothing.
void settle_ftrl(const ModelOptions& model, const UpdateOptions& rates, const Layout& layout,
                 float* state);

// 0 … n - 1, drawn without <random>'s distributions, whose results differ between libraries.
std::vector<std::uint64_t> shuffled(std::size_t n, std::uint64_t seed);
// The order of an epoch's rows, epochs counted from 0: it depends on seed and epoch alone. Groups
// of neighbours change places: rows that are used one after the other lie together.
std::vector<std::uint64_t> order_of_epoch(std::size_t rows, int epoch, const TrainOptions& options);

}  // namespace motley::wide
