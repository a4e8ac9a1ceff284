// What is measured: one rank of a library, with its collectives as functions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/cli/perf/cell.h"
#include "comm/view.h"

namespace motley::perf {

// Memory for the data of cells, of the kind that was asked for.
class Storage {
 public:
  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  virtual ~Storage() = default;
  virtual Bytes bytes() = 0;
  virtual Memory memory() const { return Memory::kHost; }
};

// Page-aligned memory of this process.
std::unique_ptr<Storage> private_storage(std::size_t bytes);

class Subject {
 public:
  using Call = std::function<void()>;

  Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  virtual ~Subject() = default;

  // "motley 0.1.0, commit 12a6487c0ffe", "Open MPI 4.1.4".
  virtual std::string library() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void barrier() = 0;
  // Each value becomes the greatest of it over all ranks.
  virtual void greatest(std::span<double> values) = 0;
  // Null if the library has no buffers of that kind.
  virtual std::unique_ptr<Storage> allocate(std::size_t bytes, Buffers buffers) = 0;
  // One call of the cell's collective, complete when it returns. `in` and `out` are the buffers of
  // extent(); in place `in` lies in `out`. Empty if the library has no such collective.
  virtual Call prepare(const Cell& cell, ConstView in, View out) = 0;
  // The algorithm that such a call uses; "-" if the library does not say.
  virtual std::string algorithm(const Cell& cell) const = 0;
  // Seconds that the library itself expects such a call to take, if it does.
  virtual std::optional<double> price(const Cell&) const { return std::nullopt; }
};

}  // namespace motley::perf
