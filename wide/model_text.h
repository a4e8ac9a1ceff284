// wide/model_text.h: models as text, for people and for other programs.
//
//   save_text(Model::load("train.model"), "train.txt");
//   Model again = load_text("train.txt");       // the same scores; the optimizer begins anew
//   Model theirs = load_text("xlearn.txt");     // what xlearn_train -t or libffm's ffm-train wrote
//
// Our text, a line each, numbers as short as reads back alike:
//   motley-wide-text 1
//   kind ffm | loss logistic | normalisation instance | k 4 | offset 0 | bias -1.25
//   recipe RECIPE                              only where ids are hashed (schema.h)
//   fields 0 1 2                               of models that look at fields
//   pair FIELD FIELD WEIGHT                    of field-weighted models
//   feature ID WEIGHT FACTOR …                 k factors; of ffm k for each field, in their order
// A row's score is what linear.h, fm.h, ffm.h and fwfm.h say, plus bias and offset; where rows are
// normalised, x is x / |x|.
#pragma once

#include <string>

#include "wide/model.h"

namespace motley::wide {

// Replaces the file whole or not at all. Throws kIo.
void save_text(const Model& model, const std::string& path);

// Whether the file begins like one of the three kinds of text.
bool is_model_text(const std::string& path);

// Reads our text, xLearn's or libffm's. Theirs are logistic; `normalisation` says whether an xLearn
// FFM was trained with it, as it is by default, which only libffm's text tells. xLearn's LR never
// is, and its FM scales pairs in a way of its own: train it with --no-norm, and pass kNone. Throws
// kIo; kInvalid, naming the line, for what is none of these or incomplete.
Model load_text(const std::string& path, Normalisation normalisation = Normalisation::kInstance);

}  // namespace motley::wide
