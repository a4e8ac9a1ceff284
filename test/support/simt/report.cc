#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "test/support/simt/check.h"

namespace motley::simt {
namespace {

std::string text_of(const char* what, const Traffic& traffic) {
  if (traffic.instructions == 0) return {};
  return fmt::format(" {}: {} bytes in {} sectors, {} at least;", what, traffic.bytes,
                     traffic.sectors, traffic.minimum);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Fault& fault) {
  return out << fmt::format("{}: {} block ({}, {}, {}) thread ({}, {}, {}) at {}: {}",
                            name(fault.kind), fault.kernel, fault.block.x, fault.block.y,
                            fault.block.z, fault.thread.x, fault.thread.y, fault.thread.z,
                            fault.place, fault.what);
}

Traffic& Traffic::operator+=(const Traffic& other) noexcept {
  instructions += other.instructions;
  bytes += other.bytes;
  sectors += other.sectors;
  minimum += other.minimum;
  return *this;
}

Traffic KernelReport::global() const noexcept {
  Traffic all = reads;
  all += writes;
  all += atomics;
  return all;
}

KernelReport& KernelReport::operator+=(const KernelReport& other) {
  launches += other.launches;
  blocks += other.blocks;
  reads += other.reads;
  writes += other.writes;
  atomics += other.atomics;
  shared_instructions += other.shared_instructions;
  bank_conflicts += other.bank_conflicts;
  atomic_operations += other.atomic_operations;
  atomics_on_one_address = std::max(atomics_on_one_address, other.atomics_on_one_address);
  divergent_branches += other.divergent_branches;
  return *this;
}

KernelReport Report::total() const {
  KernelReport sum;
  for (const KernelReport& one : kernels) sum += one;
  return sum;
}

const KernelReport& Report::kernel(const std::string& part) const {
  const KernelReport* found = nullptr;
  for (const KernelReport& one : kernels) {
    if (one.name.find(part) == one.name.npos) continue;
    if (found != nullptr) throw std::out_of_range("several kernels are named " + part + text());
    found = &one;
  }
  if (found == nullptr) throw std::out_of_range("no kernel is named " + part + text());
  return *found;
}

std::string Report::text() const {
  std::string text;
  for (const Fault& fault : faults) {
    std::ostringstream line;
    line << '\n' << fault;
    text += line.str();
  }
  for (const KernelReport& one : kernels) {
    text += fmt::format("\n{}: {} blocks;", one.name, one.blocks) + text_of("reads", one.reads) +
            text_of("writes", one.writes) + text_of("atomics", one.atomics) +
            fmt::format(
                " {} accesses to shared memory with {} bank conflicts; {} atomics, {} on "
                "one address; {} divergent branches",
                one.shared_instructions, one.bank_conflicts, one.atomic_operations,
                one.atomics_on_one_address, one.divergent_branches);
  }
  return text;
}

}  // namespace motley::simt
