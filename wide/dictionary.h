// wide/dictionary.h: feature ids of a data set to slots 0, 1, 2, … of a model, most frequent first,
// so that what is used most lies together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wide/dataset.h"

namespace motley::wide {

class Dictionary {
 public:
  static constexpr std::uint32_t kUnknown = 0xffffffffu;

  Dictionary() : Dictionary(std::vector<std::uint32_t>{}) {}
  // ids[slot] is the id of `slot`. Throws kInvalid on a duplicate id, or on more than 2^31 of them.
  explicit Dictionary(std::vector<std::uint32_t> ids);
  // Every id in `data`: by falling number of entries, then by id.
  static Dictionary by_frequency(const Dataset& data);
  // With the ids of `data` that it lacks behind its own, in the same order.
  Dictionary grown(const Dataset& data) const;

  std::size_t size() const noexcept { return ids_.size(); }
  std::span<const std::uint32_t> ids() const noexcept { return ids_; }
  // The slot of `id`, or kUnknown. Open addressing: about one cache line.
  std::uint32_t slot(std::uint32_t id) const noexcept { return table_[find(id)]; }

 private:
  friend class Frequencies;
  std::size_t find(std::uint32_t id) const noexcept;  // where in table_ `id` is, or belongs
  void grow();

  std::vector<std::uint32_t> ids_;
  std::vector<std::uint32_t> table_;  // slots; a power of two, at most half full
};

// Counts the entries of ids, part by part, for Dictionary::by_frequency().
class Frequencies {
 public:
  void add(std::span<const std::uint32_t> ids);
  // As counted elsewhere.
  void add(std::uint32_t id, std::uint64_t entries) { counts_[place(id)] += entries; }
  // Of ids()[i] there are entries()[i]; ids in the order in which they came.
  std::span<const std::uint32_t> ids() const noexcept { return seen_.ids(); }
  std::span<const std::uint64_t> entries() const noexcept { return counts_; }
  Dictionary dictionary() const;

 private:
  std::size_t place(std::uint32_t id);  // in counts_, where it is 0 if the id is new

  Dictionary seen_;
  std::vector<std::uint64_t> counts_;  // [seen_.size()]
};

}  // namespace motley::wide
