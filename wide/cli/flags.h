// wide/cli/flags.h: what several commands take, and how they read data and print figures.
#pragma once

#include <gflags/gflags_declare.h>

#include <optional>
#include <string>
#include <vector>

#include "wide/auc.h"
#include "wide/dataset.h"
#include "wide/model.h"
#include "wide/reader.h"

DECLARE_int32(threads);
DECLARE_string(output);
DECLARE_bool(quiet);

namespace motley::wide {

// Whether the user has typed this flag, be it with the value of its default.
bool is_given(const char* flag);
// Throws UsageError, naming flag, value and range, unless it holds.
void check_flag(const char* flag, bool holds, const char* range);
// Of threads, which all commands but one take.
void check_threads();

// Labels that a loss learns from.
Labels labels_for(Loss loss);
// What the flags say of data, for a command that makes a model or none.
ReadOptions read_options(Labels labels);
// What the model says. Throws UsageError for a flag that says other of its ids.
ReadOptions read_options(const Model& model, Labels labels);
// FILE,FILE… as they are; a comma in the name of a file that is there parts nothing.
std::vector<std::string> split_files(const std::string& files);
// These, and what flags say is read with them.
std::vector<std::string> inputs_of(const std::string& files);
// Reads FILE, or FILE,FILE…: text, or a cache; by way of a cache if a flag says so, and with the
// weights that a flag names.
enum class Weights { kByFlag, kNone };
Dataset read_data(const std::string& files, const ReadOptions& options,
                  Weights weights = Weights::kByFlag);

// One line: the loss, AUC, accuracy.
std::string to_text(const Evaluation& e, Loss loss);
// And the others: normalised entropy, calibration, precision, recall.
std::string details(const Evaluation& e);
// A line that the caller waits for: lost output is an error.
void print_result(const std::string& line);
// Writes to --output, or to standard output.
void write_output(const std::string& text);
// The part of a path behind its last slash.
std::string file_name(const std::string& path);

}  // namespace motley::wide
