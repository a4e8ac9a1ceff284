// wide/defaults.h: what TrainOptions leave to the trainer becomes what suits model and data.
#pragma once

#include "wide/dataset.h"
#include "wide/trainer.h"

namespace motley::wide {

// As many features of equal value as a row of `data` has on average: (sum |x|)^2 / sum x^2.
double mean_features(const Dataset& data);
// The sum over rows, of which that is the mean (but at least 1).
double sum_of_features(const Dataset& data);

// All that is below 0 (epochs: 0) in `o` becomes what TrainOptions say. options.model: resolved,
// for a fresh model.
TrainOptions settled(TrainOptions o, const Dataset& train, bool validates);
// For data of which these are the mean_features().
TrainOptions settled(TrainOptions o, double features, bool validates);

}  // namespace motley::wide
