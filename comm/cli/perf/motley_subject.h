// Motley as the library that is measured.
#pragma once

#include "comm/algorithm/choose.h"
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
  std::optional<double> price(const Cell& cell) const override;
  // Which algorithm such a call takes, its price, and the others': a table for people.
  std::string explanation(const Cell& cell) const;

 private:
  Call prepare_varied(const Cell& cell, ConstView in, View out, const CallOptions& options);
  Call prepare_ring(ConstView in, View out);
  Choice choice(const Cell& cell, std::size_t bytes) const;
  const Topology& topology() const;

  Communicator& comm_;
};

}  // namespace motley::perf
