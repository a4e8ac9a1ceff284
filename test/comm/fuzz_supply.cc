// Lists of ranges as they come, then a controller's desk under requests of any ranks: a list that
// is read is sound and encoded to the same bytes again; no number is held by two ranks or counted
// twice, and every answer can be encoded and read.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <array>
#include <vector>

#include "comm/control/supply_desk.h"
#include "test/support/fuzz.h"

namespace motley::test {
namespace {

constexpr int kRanks = 3;
constexpr std::int64_t kCount = 40;
constexpr int kFree = -1, kCounted = -2;

void read(const std::string& text, std::size_t lists, std::int64_t count) {
  const auto ranges = decode_ranges(text, lists, count);
  if (ranges.empty()) return;
  require(ranges.size() == lists && encode_ranges(ranges) == text);
  for (const auto& list : ranges) {
    RangeSet set;
    std::int64_t numbers = 0;
    for (const Range& range : list) {
      require(range.begin >= 0 && range.count() > 0 && range.end <= count);
      set.add(range);
      numbers += range.count();
    }
    require(set.count() == numbers);
  }
}

std::vector<Range> some_ranges(FuzzedDataProvider& in) {
  std::vector<Range> list;
  for (int i = in.ConsumeIntegralInRange<int>(0, 4); i > 0; --i) {
    const auto begin = in.ConsumeIntegralInRange<std::int64_t>(-1, kCount);
    list.push_back({begin, begin + in.ConsumeIntegralInRange<std::int64_t>(-1, 9)});
  }
  return list;
}

std::string value_from(FuzzedDataProvider& in) {
  if (in.ConsumeBool()) return in.ConsumeRandomLengthString(100);
  return encode_ranges({some_ranges(in), some_ranges(in)});
}

MessageType type_from(FuzzedDataProvider& in) {
  return static_cast<MessageType>(in.ConsumeIntegralInRange<int>(
      static_cast<int>(MessageType::kSupplyOpen), static_cast<int>(MessageType::kSupplyLeft)));
}

// Any requests, of supplies that open as they come.
void ask_anything(FuzzedDataProvider& in, SupplyDesk& desk) {
  const int rank = in.ConsumeIntegralInRange<int>(0, kRanks - 1);
  const auto answers = desk.request(rank, {.type = type_from(in),
                                           .number = in.ConsumeIntegral<std::int64_t>(),
                                           .key = in.ConsumeRandomLengthString(1),
                                           .value = value_from(in)});
  for (const SupplyDesk::Answer& answer : answers) {
    require(decode(encode(answer.message)) == answer.message);
  }
}

// A desk with one supply, and who has each number as far as the desk and the ranks have said.
class Model {
 public:
  Model() {
    has_.fill(kFree);
    const auto answers = desk_.request(0, {.type = MessageType::kSupplyOpen,
                                           .number = kCount,
                                           .key = "s",
                                           .value = encode_ranges({{{0, kCount}}})});
    require(answers.size() == 1 && answers[0].message.type == MessageType::kOk);
  }

  void step(FuzzedDataProvider& in) {
    const int rank = in.ConsumeIntegralInRange<int>(0, kRanks - 1);
    if (in.ConsumeIntegralInRange<int>(0, 9) == 0) {
      keep(rank, {});
      for (const auto& answer : desk_.gone(rank)) take_grant(answer);
      return;
    }
    const bool asks_what_is_left = in.ConsumeBool();
    const Message request{
        .type = asks_what_is_left ? MessageType::kSupplyLeft : MessageType::kSupplyTake,
        .number = in.ConsumeIntegralInRange<std::int64_t>(-1, 9),
        .key = "s",
        .value = value_from(in)};
    auto answers = desk_.request(rank, request);
    const bool refused = !answers.empty() && answers[0].message.type == MessageType::kError;
    require(!refused || answers[0].rank == rank);
    if (refused) return;
    const auto lists = decode_ranges(request.value, 2, kCount);
    require(lists.size() == 2);
    count(rank, lists[0]);
    keep(rank, lists[1]);
    if (asks_what_is_left) {
      require(!answers.empty() && answers[0].rank == rank);
      check_left(answers[0].message);
      answers.erase(answers.begin());
    }
    for (const auto& answer : answers) take_grant(answer);
  }

 private:
  int& owner(std::int64_t number) { return has_[static_cast<std::size_t>(number)]; }
  bool holds(int rank, const Range& range) {
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      if (owner(i) != rank) return false;
    }
    return true;
  }
  void give(const Range& range, int to) {
    for (std::int64_t i = range.begin; i < range.end; ++i) owner(i) = to;
  }

  void count(int rank, const std::vector<Range>& ranges) {
    for (const Range& range : ranges) {
      require(holds(rank, range));
      give(range, kCounted);
    }
  }
  // Ranges of which it lacks a number are free, too.
  void keep(int rank, const std::vector<Range>& ranges) {
    std::vector<Range> kept;
    for (const Range& range : ranges) {
      if (holds(rank, range)) kept.push_back(range);
    }
    std::replace(has_.begin(), has_.end(), rank, kFree);
    for (const Range& range : kept) give(range, rank);
  }
  void take_grant(const SupplyDesk::Answer& answer) {
    require(answer.message.type == MessageType::kValue);
    const auto lists = decode_ranges(answer.message.value, 2, kCount);
    require(lists.size() == 2);  // what was taken, and all that is not counted
    for (const Range& range : lists[0]) {
      require(holds(kFree, range));
      give(range, answer.rank);
    }
    require(answer.message.number == left());
  }
  void check_left(const Message& message) {
    const auto lists = decode_ranges(message.value, 2, kCount);
    require(lists.size() == 2 && lists[0] == lists[1] && message.number == left());
    std::int64_t listed = 0;
    for (const Range& range : lists[0]) {
      listed += range.count();
      for (std::int64_t i = range.begin; i < range.end; ++i) require(owner(i) != kCounted);
    }
    require(listed == left());
  }
  std::int64_t left() const { return kCount - std::count(has_.begin(), has_.end(), kCounted); }

  SupplyDesk desk_;
  std::array<int, kCount> has_{};
};

}  // namespace
}  // namespace motley::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  FuzzedDataProvider in(data, size);
  test::read(in.ConsumeRandomLengthString(200), in.ConsumeIntegralInRange<std::size_t>(1, 3),
             in.ConsumeBool() ? in.ConsumeIntegral<std::int64_t>() : 100);
  SupplyDesk any;
  test::Model model;
  while (in.remaining_bytes() > 0) {
    if (in.ConsumeIntegralInRange<int>(0, 3) == 0) {
      test::ask_anything(in, any);
    } else {
      model.step(in);
    }
  }
  return 0;
}
