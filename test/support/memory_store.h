// test/support/memory_store.h: a Store for ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "comm/error.h"
#include "comm/store.h"

namespace motley::test {

class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override {
    {
      const std::lock_guard lock(mutex_);
      values_.insert_or_assign(std::string(key), std::string(value));
    }
    changed_.notify_all();
  }
  std::string get(std::string_view key, TimePoint deadline) override {
    std::unique_lock lock(mutex_);
    const std::string wanted(key);
    if (!changed_.wait_until(lock, deadline, [&] { return values_.count(wanted) != 0; })) {
      throw Error(ErrorCode::kTimeout, "store: no value of " + wanted + " came in time.");
    }
    return values_[wanted];
  }
  std::int64_t add(std::string_view key, std::int64_t amount) override {
    const std::lock_guard lock(mutex_);
    return counters_[std::string(key)] += amount;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::int64_t> counters_;
};

}  // namespace motley::test
