#include "comm/algorithm/relays.h"

#include <algorithm>

namespace motley {

Relays::Relays(const Hosts& hosts, int host)
    : hosts_(hosts), host_(host), size_(hosts.size_of(host)), count_before_{0} {
  for (int k = 0; k < size_; ++k) {
    counts_.push_back(before(k, hosts_.count()));
    count_before_.push_back(count_before_.back() + counts_.back());
  }
}

int Relays::sources(int k, int host) const {
  if (host == host_) return 1;
  return (hosts_.size_of(host) + size_ - 1 - k) / size_;
}

int Relays::before(int k, int host) const {
  if (hosts_.all_alike()) return host;
  int sum = 0;
  for (int h = 0; h < host; ++h) sum += sources(k, h);
  return sum;
}

int Relays::source(int k, int s) const {
  if (hosts_.all_alike()) return hosts_.rank_at(s, k);
  int host = 0;
  for (; s >= sources(k, host); ++host) s -= sources(k, host);
  return hosts_.rank_at(host, k + s * size_);
}

int Relays::own(int k) const { return before(k, host_); }

int Relays::count_before(int k) const { return count_before_[static_cast<std::size_t>(k)]; }

int Relays::owner(int i) const {
  const auto next = std::upper_bound(count_before_.begin(), count_before_.end(), i);
  return static_cast<int>(next - count_before_.begin()) - 1;
}

int most_relayed(const Hosts& hosts) {
  if (hosts.most() == 1) return 1;
  if (hosts.all_alike()) return std::max(hosts.most(), hosts.count());
  int most = hosts.most();
  for (int host = 0; host < hosts.count(); ++host) {
    int relayed = 0;  // by the first rank, which relays most
    for (int other = 0; other < hosts.count(); ++other) {
      const int size = hosts.size_of(host);
      relayed += other == host ? 1 : (hosts.size_of(other) + size - 1) / size;
    }
    most = std::max(most, relayed);
  }
  return most;
}

}  // namespace motley
