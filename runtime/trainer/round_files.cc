#include "runtime/trainer/round_files.h"

#include <cstdio>
#include <fstream>

#include "comm/error.h"

namespace motley::runtime {

RoundFiles::RoundFiles(int rank, const TrainerOptions& options)
    : prometheus_(options.prometheus), totals_(rank) {
  if (!options.round_log.empty()) log_.emplace(options.round_log);
  if (!options.trace.empty()) trace_.emplace(options.trace);
  write_totals();
}

void RoundFiles::add(const Round& round) {
  if (log_) log_->write(round);
  if (trace_) trace_->write(round);
  totals_.add(round);
  if (round.end - written_ < seconds(1)) return;
  written_ = round.end;
  write_totals();
}

void RoundFiles::flush() {
  if (log_) log_->flush();
  if (trace_) trace_->flush();
  write_totals();
}

// Whole at any moment: who reads it meanwhile finds the old or the new.
void RoundFiles::write_totals() {
  if (prometheus_.empty()) return;
  const std::string part = prometheus_ + ".part";
  std::ofstream file(part);
  file << totals_.to_prometheus();
  if (!file.flush()) throw_errno("write " + part);
  file.close();
  if (std::rename(part.c_str(), prometheus_.c_str()) != 0) throw_errno("rename " + part);
}

}  // namespace motley::runtime
