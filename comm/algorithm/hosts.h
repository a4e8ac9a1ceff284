// comm/algorithm/hosts.h: which ranks of a group share a host: what hierarchical families ask.
#pragma once

#include <vector>

#include "comm/algorithm/schedule.h"

namespace motley {

// A copy is cheap where hosts are alike: `count` hosts of as many ranks each, rank r on host
// r / ranks per host. Else it holds the lists. Without a topology each rank is a host of its own.
class Hosts {
 public:
  explicit Hosts(const Shape& shape);

  int count() const noexcept { return count_; }
  // Ranks on the host that has most.
  int most() const noexcept { return most_; }
  bool all_alike() const noexcept { return first_.empty(); }
  int size_of(int host) const noexcept {
    return all_alike() ? most_ : first_[at(host) + 1] - first_[at(host)];
  }
  // The i-th rank of a host.
  int rank_at(int host, int i) const noexcept {
    return all_alike() ? host * most_ + i : ranks_[at(first_[at(host)] + i)];
  }
  int host_of(int rank) const noexcept { return all_alike() ? rank / most_ : host_of_[at(rank)]; }
  // Ranks on the hosts before this one.
  int before(int host) const noexcept { return all_alike() ? host * most_ : first_[at(host)]; }
  // The i-th rank if they are counted host by host.
  int in_order(int i) const noexcept { return all_alike() ? i : ranks_[at(i)]; }
  // Position of a rank on its host.
  int index_of(int rank) const noexcept { return all_alike() ? rank % most_ : index_of_[at(rank)]; }
  // Whether the ranks of each host are numbered one after another.
  bool in_runs() const noexcept { return in_runs_; }

 private:
  static std::size_t at(int i) noexcept { return static_cast<std::size_t>(i); }

  int count_ = 1;
  int most_ = 1;
  bool in_runs_ = true;
  std::vector<int> first_;     // by host: where its ranks begin in ranks_; one more at the end
  std::vector<int> ranks_;     // by host
  std::vector<int> host_of_;   // by rank
  std::vector<int> index_of_;  // by rank
};

// Whether there are several hosts, and one with several ranks.
bool has_levels(const Shape& shape);

}  // namespace motley
