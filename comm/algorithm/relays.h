// comm/algorithm/relays.h: through which rank of a host the blocks of other hosts' ranks come in.
#pragma once

#include <vector>

#include "comm/algorithm/hosts.h"

namespace motley {

// What rank j of a host sends to a host of n ranks goes through rank j mod n there. Each rank is
// the relay of some ranks of every other host and, on its own host, of itself only.
class Relays {
 public:
  Relays(const Hosts& hosts, int host);

  // How many ranks' blocks for this host come through its k-th rank, and whose; by host.
  int count(int k) const { return counts_[static_cast<std::size_t>(k)]; }
  int source(int k, int s) const;
  // The position of the k-th rank itself among those.
  int own(int k) const;
  // How many there are on the hosts before `host`; sources(k, host) of them are on it.
  int before(int k, int host) const;
  int sources(int k, int host) const;
  // The sum of count(0) … count(k - 1).
  int count_before(int k) const;
  // The k for which count_before(k) <= i < count_before(k + 1).
  int owner(int i) const;

 private:
  Hosts hosts_;
  int host_;
  int size_;
  std::vector<int> counts_;        // by k
  std::vector<int> count_before_;  // by k
};

// The most blocks that a rank of any host relays to another of its host, or that a rank sends to
// another host, if every rank sends one block to every other.
int most_relayed(const Hosts& hosts);

}  // namespace motley
