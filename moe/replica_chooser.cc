#include "moe/replica_chooser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "comm/error.h"
#include "moe/digest.h"

namespace motley::moe {
namespace {

// Deals replica[i] from `among` in turn.
void deal(std::span<const int> among, int first, std::span<int> replica) {
  auto next = static_cast<std::size_t>(first) % among.size();
  for (int& chosen : replica) {
    chosen = among[next];
    next = (next + 1) % among.size();
  }
}

class LocalFirst : public ReplicaChooser {
 public:
  explicit LocalFirst(std::vector<int> group) : group_(std::move(group)) {}

  void choose(const ReplicaQuery& query, std::span<int> replica) const override {
    if (!group_.empty() && group_.size() != static_cast<std::size_t>(query.placement.ranks())) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("moe replica chooser: groups of {} ranks for a placement on {}. Give "
                              "one for each.",
                              group_.size(), query.placement.ranks()));
    }
    std::vector<int> near;
    int least = kFar;
    for (const int candidate : query.live) {
      const int distance = distance_to(query, candidate);
      if (distance < least) near.clear();
      least = std::min(least, distance);
      if (distance == least) near.push_back(candidate);
    }
    deal(near, query.rank, replica);
  }

  std::uint64_t digest() const noexcept override { return Digest().add(1).add(group_).value(); }

 private:
  static constexpr int kFar = 2;

  int distance_to(const ReplicaQuery& query, int replica) const {
    int distance = kFar;
    for (const std::int32_t i : query.placement.replica(query.expert, replica)) {
      const int rank = query.placement.physical()[static_cast<std::size_t>(i)].rank;
      if (rank == query.rank) return 0;
      if (!group_.empty() &&
          group_[static_cast<std::size_t>(rank)] == group_[static_cast<std::size_t>(query.rank)]) {
        distance = 1;
      }
    }
    return distance;
  }

  std::vector<int> group_;
};

class EvenSplit : public ReplicaChooser {
 public:
  void choose(const ReplicaQuery& query, std::span<int> replica) const override {
    deal(query.live, query.rank, replica);
  }
  std::uint64_t digest() const noexcept override { return Digest().add(2).value(); }
};

class Weighted : public ReplicaChooser {
 public:
  explicit Weighted(std::vector<std::vector<double>> weight) : weight_(std::move(weight)) {
    for (std::size_t e = 0; e < weight_.size(); ++e) {
      for (const double w : weight_[e]) {
        if (std::isfinite(w) && w >= 0) continue;
        throw Error(ErrorCode::kInvalid,
                    fmt::format("moe replica chooser: a weight of expert {} is {}. Weights are "
                                "finite and at least 0.",
                                e, w));
      }
    }
  }

  // The replica that lags most behind its share gets the next choice.
  void choose(const ReplicaQuery& query, std::span<int> replica) const override {
    const std::vector<double> share = shares(query);
    std::vector<double> owed(share.size(), 0.0);
    for (int& chosen : replica) {
      for (std::size_t i = 0; i < share.size(); ++i) owed[i] += share[i];
      const auto most = std::ranges::max_element(owed);
      *most -= 1;
      chosen = query.live[static_cast<std::size_t>(most - owed.begin())];
    }
  }

  std::uint64_t digest() const noexcept override {
    Digest digest;
    digest.add(3).add(weight_.size());
    for (const std::vector<double>& weights : weight_) {
      digest.add(weights.size());
      for (const double w : weights) digest.add(std::bit_cast<std::uint64_t>(w));
    }
    return digest.value();
  }

 private:
  std::vector<double> shares(const ReplicaQuery& query) const {
    const auto e = static_cast<std::size_t>(query.expert);
    const auto replicas = static_cast<std::size_t>(query.placement.replicas(query.expert));
    if (e >= weight_.size() || weight_[e].size() != replicas) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("moe replica chooser: expert {} has {} replicas but {} weights. Give "
                              "one for each.",
                              e, replicas, e < weight_.size() ? weight_[e].size() : 0));
    }
    std::vector<double> share(query.live.size());
    for (std::size_t i = 0; i < share.size(); ++i) {
      share[i] = weight_[e][static_cast<std::size_t>(query.live[i])];
    }
    const double sum = std::accumulate(share.begin(), share.end(), 0.0);
    for (double& s : share) s = sum > 0 ? s / sum : 1 / static_cast<double>(share.size());
    return share;
  }

  std::vector<std::vector<double>> weight_;
};

}  // namespace

std::unique_ptr<ReplicaChooser> local_first_chooser(std::vector<int> group) {
  return std::make_unique<LocalFirst>(std::move(group));
}

std::unique_ptr<ReplicaChooser> even_split_chooser() { return std::make_unique<EvenSplit>(); }

std::unique_ptr<ReplicaChooser> weighted_chooser(std::vector<std::vector<double>> weight) {
  return std::make_unique<Weighted>(std::move(weight));
}

}  // namespace motley::moe
