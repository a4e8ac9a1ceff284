// Motley as the library that is measured.
#pragma once

#include "comm/cli/perf/subject.h"
#include "comm/communicator.h"

namespace motley::perf {

class MotleySubject final : public Subject {
 public:
  explicit MotleySubject(Communicator& comm) : comm_(comm) {}

  std::string library() const override;
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  void barrier() override { comm_.barrier().wait(); }
  void greatest(std::span<double> values) override;
  std::unique_ptr<Storage> allocate(std::size_t bytes, Buffers buffers) override;
  Call prepare(const Cell& cell, ConstView in, View out) override;
  std::string algorithm(const Cell& cell) const override;

 private:
  Communicator& comm_;
};

}  // namespace motley::perf
