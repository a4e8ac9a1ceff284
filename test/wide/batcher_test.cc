// Shows that requests for predictions are answered together and each by its own, refused where too
// many rows wait, given up at their deadline, and that a bad one spoils no other.
#include "wide/cli/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <utility>

namespace motley::wide {
namespace {

using namespace std::chrono_literals;
using Kind = Batcher::Answer::Kind;
using testing::ElementsAre;

constexpr auto kLong = 60s;

// Predicts a row's only id, but first waits until the test lets it go; throws at the id 666.
class Batches : public testing::Test {
 protected:
  Batches()
      : batcher_(
            [this](const Dataset& rows) {
              {
                std::unique_lock lock(mutex_);
                begun_ = true;
                changed_.notify_all();
                changed_.wait_for(lock, kLong, [this] { return open_; });
              }
              std::vector<float> out;
              for (const std::uint32_t id : rows.ids) {
                if (id == 666) throw std::runtime_error("666 is bad");
                out.push_back(static_cast<float>(id) + (rows.recipe.empty() ? 0 : 1000));
              }
              return out;
            },
            {.batch_rows = 4, .waiting_rows = 5}) {}

  static Dataset rows(std::initializer_list<std::uint32_t> ids) {
    Dataset data;
    for (const std::uint32_t id : ids) {
      data.ids.push_back(id);
      data.labels.push_back(0);
      data.row_begin.push_back(data.ids.size());
    }
    return data;
  }
  std::future<Batcher::Answer> ask(std::initializer_list<std::uint32_t> ids,
                                   const char* recipe = "") {
    Dataset data = rows(ids);
    data.recipe = recipe;
    return std::async(std::launch::async,
                      [this, data = std::move(data)] { return batcher_.predict(data, kLong); });
  }
  // Until a first request keeps the batcher busy; all that come later wait.
  std::future<Batcher::Answer> hold() {
    auto first = ask({1});
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLong, [this] { return begun_; }));
    return first;
  }
  // Until so many rows wait.
  void await(std::size_t waiting) const {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (batcher_.counts().waiting_rows != waiting) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::yield();
    }
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  bool open_ = false;
  Batcher batcher_;
};

TEST_F(Batches, AreMadeOfWhatWaits) {
  auto first = hold();
  auto second = ask({2, 3});
  await(2);
  auto third = ask({4});
  await(3);
  auto fourth = ask({5, 6});  // more than a batch holds
  await(5);
  let_go();
  EXPECT_THAT(first.get().predictions, ElementsAre(1));
  EXPECT_THAT(second.get().predictions, ElementsAre(2, 3));
  EXPECT_THAT(third.get().predictions, ElementsAre(4));
  EXPECT_THAT(fourth.get().predictions, ElementsAre(5, 6));
  EXPECT_EQ(batcher_.counts().batches, 3u);
  EXPECT_EQ(batcher_.counts().rows, 6u);
}

TEST_F(Batches, RefuseMoreRowsThanMayWait) {
  EXPECT_EQ(batcher_.predict(rows({1, 2, 3, 4, 5, 6}), kLong).kind, Kind::kBusy);
  auto first = hold();
  auto second = ask({2, 3, 4});
  await(3);
  const Batcher::Answer refused = batcher_.predict(rows({5, 6, 7}), kLong);
  EXPECT_EQ(refused.kind, Kind::kBusy);
  EXPECT_THAT(refused.error, testing::HasSubstr("limit 5"));
  auto third = ask({8, 9});
  await(5);
  let_go();
  EXPECT_EQ(first.get().kind, Kind::kOk);
  EXPECT_THAT(second.get().predictions, ElementsAre(2, 3, 4));
  EXPECT_THAT(third.get().predictions, ElementsAre(8, 9));
}

TEST_F(Batches, GiveUpAtTheDeadlineAndPredictNothingForThoseWhoLeft) {
  auto first = hold();
  EXPECT_EQ(batcher_.predict(rows({2, 3}), 1ms).kind, Kind::kLate);
  auto third = ask({4});
  await(3);
  let_go();
  EXPECT_EQ(first.get().kind, Kind::kOk);
  EXPECT_THAT(third.get().predictions, ElementsAre(4));
  EXPECT_EQ(batcher_.counts().rows, 2u);
  EXPECT_EQ(batcher_.counts().waiting_rows, 0u);
}

TEST_F(Batches, OfWhichOneIsBadAnswerTheOthers) {
  auto first = hold();
  auto second = ask({2});
  await(1);
  auto third = ask({666});
  await(2);
  let_go();
  EXPECT_EQ(first.get().kind, Kind::kOk);
  EXPECT_THAT(second.get().predictions, ElementsAre(2));
  const Batcher::Answer bad = third.get();
  EXPECT_EQ(bad.kind, Kind::kBad);
  EXPECT_EQ(bad.error, "666 is bad");
}

// Ids of one would be taken for those of the other.
TEST_F(Batches, AreOfRowsThatWereReadAlike) {
  auto first = hold();
  auto second = ask({2});
  await(1);
  auto third = ask({3}, "csv 32 44 1 ");
  await(2);
  let_go();
  EXPECT_EQ(first.get().kind, Kind::kOk);
  EXPECT_THAT(second.get().predictions, ElementsAre(2));
  EXPECT_THAT(third.get().predictions, ElementsAre(1003));
}

}  // namespace
}  // namespace motley::wide
