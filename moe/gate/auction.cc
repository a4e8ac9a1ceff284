#include "moe/gate/auction.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <set>
#include <utility>

namespace motley::moe::gate {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr double kFinest = 1e-4;  // of the range of values
constexpr double kStep = 5;

// Every expert sells floor(tokens / experts) seats, and one more where tokens are left over. Then
// so many idle bidders, who take nothing but last seats and do not care which, that no seat is
// free.
class Auction {
 public:
  Auction(In value, std::size_t experts)
      : value_(value),
        experts_(experts),
        tokens_(value.size() / experts),
        seats_(tokens_ / experts + (tokens_ % experts == 0 ? 0 : 1)),
        bidders_(seats_ * experts),
        price_(bidders_, 0.0),
        holder_(bidders_),
        order_(experts) {}

  std::vector<std::int32_t> run() {
    const auto [low, high] = std::ranges::minmax(value_);
    const double range = high > low ? high - low : 1;
    for (double increment = range / 4;; increment = std::max(increment / kStep, range * kFinest)) {
      sell_all(increment);
      if (increment <= range * kFinest) break;
    }
    std::vector<std::int32_t> expert(tokens_);
    for (std::size_t seat = 0; seat < bidders_; ++seat) {
      if (holder_[seat] < tokens_) {
        expert[holder_[seat]] = static_cast<std::int32_t>(seat / seats_);
      }
    }
    return expert;
  }

 private:
  // The best offer to a bidder, and what the second best is worth.
  struct Offers {
    void see(std::size_t at, double worth) {
      second = std::max(second, std::min(worth, best));
      if (worth > best) {
        best = worth;
        seat = at;
      }
    }
    std::size_t seat = 0;
    double best = kNever;
    double second = kNever;
  };

  std::size_t last_seat(std::size_t expert) const { return (expert + 1) * seats_ - 1; }

  void sell_all(double increment) {
    constexpr std::size_t kNobody = std::numeric_limits<std::size_t>::max();
    std::ranges::fill(holder_, kNobody);
    for (std::size_t e = 0; e < experts_; ++e) {
      order_[e].clear();
      for (std::size_t seat = e * seats_; seat <= last_seat(e); ++seat) {
        order_[e].emplace(price_[seat], seat);
      }
    }
    std::deque<std::size_t> waiting;
    for (std::size_t bidder = 0; bidder < bidders_; ++bidder) waiting.push_back(bidder);
    while (!waiting.empty()) {
      const std::size_t bidder = waiting.front();
      waiting.pop_front();
      const Offers offers = bidder < tokens_ ? offers_to_token(bidder) : offers_to_idle();
      const double margin = offers.second == kNever ? 0 : offers.best - offers.second;
      raise(offers.seat, margin + increment);
      if (holder_[offers.seat] != kNobody) waiting.push_back(holder_[offers.seat]);
      holder_[offers.seat] = bidder;
    }
  }

  void raise(std::size_t seat, double amount) {
    std::set<std::pair<double, std::size_t>>& order = order_[seat / seats_];
    order.erase({price_[seat], seat});
    price_[seat] += amount;
    order.emplace(price_[seat], seat);
  }

  // An expert's two cheapest seats are all that matters.
  Offers offers_to_token(std::size_t token) const {
    Offers offers;
    for (std::size_t e = 0; e < experts_; ++e) {
      const double value = value_[token * experts_ + e];
      const auto cheapest = order_[e].begin();
      offers.see(cheapest->second, value - cheapest->first);
      if (const auto next = std::next(cheapest); next != order_[e].end()) {
        offers.see(next->second, value - next->first);
      }
    }
    return offers;
  }
  Offers offers_to_idle() const {
    Offers offers;
    for (std::size_t e = 0; e < experts_; ++e) offers.see(last_seat(e), -price_[last_seat(e)]);
    return offers;
  }

  In value_;
  std::size_t experts_;
  std::size_t tokens_;
  std::size_t seats_;    // of an expert
  std::size_t bidders_;  // tokens, then idle ones
  std::vector<double> price_;
  std::vector<std::size_t> holder_;                              // of each seat
  std::vector<std::set<std::pair<double, std::size_t>>> order_;  // [experts], seats by price
};

}  // namespace

std::vector<std::int32_t> balanced_assignment(In value, std::size_t experts) {
  if (value.empty()) return {};
  return Auction(value, experts).run();
}

}  // namespace motley::moe::gate
