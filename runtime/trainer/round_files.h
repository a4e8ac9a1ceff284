// runtime/trainer/round_files.h: the files that a trainer keeps of its rounds.
#pragma once

#include <optional>
#include <string>

#include "runtime/metrics.h"
#include "runtime/trainer.h"

namespace motley::runtime {

class RoundFiles {
 public:
  RoundFiles(int rank, const TrainerOptions& options);
  void add(const Round& round);
  // All that was added is in the files; throws kIo, naming one that could not be written.
  void flush();

 private:
  void write_totals();

  std::optional<MetricsLog> log_;
  std::optional<ChromeTrace> trace_;
  std::string prometheus_;
  Totals totals_;
  Duration written_{};  // when the totals were
};

}  // namespace motley::runtime
