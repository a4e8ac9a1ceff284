#include "runtime/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <set>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "runtime/checkpoint/format.h"
#include "runtime/checkpoint/peers.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/state_exchange.h"

namespace motley::runtime {
namespace {

ConstBytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

void append(std::vector<std::byte>& out, ConstBytes bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// Such that after a power cut there is either nothing under this name or all of it.
void write_whole(FileSystem& files, const std::string& folder, const std::string& name,
                 ConstBytes content) {
  const std::string path = folder + "/" + name;
  try {
    const auto file = files.create(temporary(path));
    file->write(content);
    file->sync();
  } catch (...) {
    (void)attempt([&] { files.remove(temporary(path)); });  // a full disk wants the room
    throw;
  }
  files.rename(temporary(path), path);
  files.sync_folder(folder);
}

// Removes what belongs to checkpoints other than the newest `keep` complete ones. Numbers only
// grow, so the rest is older ones and what was left of saves that failed.
void prune(FileSystem& files, const std::string& folder, int keep) {
  const std::vector<std::string> names = files.list(folder);
  std::set<std::int64_t, std::greater<>> complete;
  for (const std::string& name : names) {
    const auto member = member_of(name);
    if (member && member->index) complete.insert(member->number);
  }
  while (complete.size() > static_cast<std::size_t>(keep))
    complete.erase(std::prev(complete.end()));
  // Indices go first, for good: there is never one whose parts are gone.
  for (const bool index : {true, false}) {
    bool removed = false;
    for (const std::string& name : names) {
      const auto member = member_of(name);
      if (!member || member->index != index || complete.contains(member->number)) continue;
      files.remove(folder + "/" + name);
      removed = true;
    }
    if (removed) files.sync_folder(folder);
  }
}

void check_host(const State& state) {
  for (const StateItem& item : state.items()) {
    if (item.data.memory == Memory::kHost) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("checkpoint: \"{}\" is in device memory. Copy it to the host and list "
                            "the copy.",
                            item.name));
  }
}

}  // namespace

class Checkpointer::Impl {
 public:
  Impl(std::string folder, Communicator* comm, const CheckpointOptions& options)
      : folder_(std::move(folder)), options_(options), comm_(comm), peers_(comm, options.timeout) {
    if (options.keep < 1 || options.timeout <= Duration{}) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("checkpoint: keep is {}, timeout {} s. Keep at least 1, and wait for "
                              "longer than 0 s.",
                              options.keep, to_seconds(options.timeout)));
    }
  }

  void save(const State& state, std::int64_t step) {
    wait();
    peers_.agree(attempt([&] { check_host(state); }));
    index_ = {.number = next_number(), .step = step, .items = layout_of(state)};
    if (options_.compare) compare(state);
    find_owners(state);
    const Part part{index_.number, peers_.rank(), peers_.size()};
    copy_share(state, part);
    phase_ = Phase::kPart;
    begin([this, name = part_name(part)] {
      entry_ = {content_.size(), crc32_of(content_)};
      write_whole(files(), folder_, name, content_);
      if (peers_.size() == 1) write_index({entry_});
    });
  }

  bool poll() {
    if (phase_ == Phase::kIdle) return true;
    const bool done = job_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    if (peers_.all(done)) proceed();
    return phase_ == Phase::kIdle;
  }

  void wait() {
    while (phase_ != Phase::kIdle) {
      peers_.agree(attempt([this] { await_job(); }));
      proceed();
    }
  }

  std::optional<Loaded> load(const State& state, const LoadOptions& options) {
    wait();
    peers_.agree(attempt([&] { check_host(state); }));
    std::optional<Error> newest;
    std::string passed_over;
    for (const std::int64_t number : complete(options.number)) {
      Index index;
      Contents contents;
      const std::string path = folder_ + "/" + index_name(number);
      auto error = peers_.exchange(attempt([&] { index = read_index(files(), folder_, number); }));
      if (!error) {
        peers_.agree(attempt([&] { check_layout(path, index, state); }));
        error = peers_.exchange(attempt([&] {
          contents =
              read_parts(files(), folder_, index, state, {number, peers_.rank(), peers_.size()});
        }));
      }
      if (!error) {
        for (std::size_t i = 0; i < contents.size(); ++i) {
          if (contents[i]) std::ranges::copy(*contents[i], state.items()[i].data.data);
        }
        return Loaded{index.step, index.workers(), path, passed_over};
      }
      if (!options.fall_back) throw *error;
      passed_over += (passed_over.empty() ? "" : " ") + std::string(error->what());
      if (!newest) newest = error;
    }
    if (newest) throw *newest;
    return std::nullopt;
  }

 private:
  enum class Phase : std::uint8_t { kIdle, kPart, kIndex };

  FileSystem& files() { return options_.files == nullptr ? local_ : *options_.files; }

  // Runs `body` beside the training.
  void begin(std::function<void()> body) {
    job_ =
        std::async(std::launch::async, [this, body = std::move(body)] { error_ = attempt(body); });
  }

  void await_job() {
    if (job_.wait_for(options_.timeout) == std::future_status::ready) return;
    throw Error(ErrorCode::kTimeout,
                fmt::format("checkpoint: worker {} of {} has not written its part of {}, {} bytes, "
                            "within {} s. Check the disk, or raise timeout.",
                            peers_.rank(), peers_.size(), folder_ + "/" + index_name(index_.number),
                            content_.size(), to_seconds(options_.timeout)));
  }

  // The job of this phase has ended on all workers.
  void proceed() {
    job_.get();
    const Phase phase = std::exchange(phase_, Phase::kIdle);
    peers_.agree(std::exchange(error_, std::nullopt));
    if (phase == Phase::kIndex || peers_.size() == 1) return;
    const std::vector<std::int64_t> entries = peers_.gather(
        {static_cast<std::int64_t>(entry_.bytes), static_cast<std::int64_t>(entry_.crc32)});
    std::vector<PartEntry> parts;
    for (std::size_t i = 0; i < entries.size(); i += 2) {
      parts.push_back(
          {static_cast<std::uint64_t>(entries[i]), static_cast<std::uint32_t>(entries[i + 1])});
    }
    phase_ = Phase::kIndex;
    begin([this, parts = std::move(parts)] {
      if (peers_.rank() == 0) write_index(parts);
    });
  }

  void write_index(std::vector<PartEntry> parts) {
    index_.parts = std::move(parts);
    write_whole(files(), folder_, index_name(index_.number), bytes_of(to_text(index_)));
    prune(files(), folder_, options_.keep);
  }

  // Larger than that of any file in the folder, so that no file is written twice.
  std::int64_t next_number() {
    std::vector<std::int64_t> number = {1};
    peers_.agree(attempt([&] {
      if (peers_.rank() != 0) return;
      files().make_folder(folder_);
      if (options_.lock && !lock_) lock_ = files().lock(folder_ + "/lock");
      for (const std::string& name : files().list(folder_)) {
        if (const auto member = member_of(name))
          number[0] = std::max(number[0], member->number + 1);
      }
    }));
    peers_.take_first(number);
    return number[0];
  }

  // Numbers of the checkpoints that have an index, as worker 0 sees them: the newest first, or
  // `first` and those before it.
  std::vector<std::int64_t> complete(std::int64_t first) {
    std::vector<std::int64_t> numbers;
    peers_.agree(attempt([&] {
      if (peers_.rank() != 0) return;
      for (const std::string& name : files().list(folder_)) {
        const auto member = member_of(name);
        if (member && member->index) numbers.push_back(member->number);
      }
    }));
    std::ranges::sort(numbers, std::greater<>());
    peers_.take_first(numbers);
    if (first == 0) return numbers;
    const auto at = std::ranges::find(numbers, first);
    if (at == numbers.end()) {
      throw Error(
          ErrorCode::kInvalid,
          fmt::format("checkpoint: {} has no complete checkpoint {}; it has {}. Name one of "
                      "these, or 0 for the newest.",
                      folder_, first, fmt::join(numbers, ", ")));
    }
    return {at, numbers.end()};
  }

  // Throws kMismatch on all workers unless they have the same items and step, and equal values of
  // those that are shared.
  void compare(const State& state) {
    if (peers_.size() == 1) return;
    check_alike(*comm_, state, {.timeout = options_.timeout});
    std::vector<std::int64_t> own = {index_.step};
    for (const StateItem& item : state.items()) {
      own.push_back(is_shared(item.policy) ? crc32_of(item.data.bytes()) : 0);
    }
    const std::vector<std::int64_t> all = peers_.gather(own);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t field = i % own.size(), worker = i / own.size();
      if (all[i] == all[field]) continue;
      throw Error(ErrorCode::kMismatch,
                  field == 0
                      ? fmt::format("checkpoint: step {} on worker 0, {} on worker {}. Save at "
                                    "the same step on all.",
                                    all[0], all[i], worker)
                      : fmt::format("checkpoint: the values of \"{}\" have crc32 {:08x} on worker "
                                    "0, {:08x} on worker {}. Average them before, or list as "
                                    "keep_own what is not shared.",
                                    state.items()[field - 1].name, all[field], all[i], worker));
    }
  }

  // Of what several have the first worker saves its own. Throws kInvalid where none has an item.
  void find_owners(const State& state) {
    std::vector<std::int64_t> here;
    for (const StateItem& item : state.items()) here.push_back(item.data.count > 0 ? 1 : 0);
    const std::vector<std::int64_t> all = peers_.gather(here);
    for (std::size_t i = 0; i < here.size(); ++i) {
      ItemLayout& item = index_.items[i];
      if (item.policy != StatePolicy::kOwned) continue;
      for (int worker = peers_.size() - 1; worker >= 0; --worker) {
        if (all[static_cast<std::size_t>(worker) * here.size() + i] != 0) item.owner = worker;
      }
      if (item.owner >= 0 || item.count() == 0) continue;
      throw Error(ErrorCode::kInvalid,
                  fmt::format("checkpoint: none of {} workers has data of \"{}\". List it with its "
                              "data on one.",
                              peers_.size(), item.name));
    }
  }

  void copy_share(const State& state, const Part& part) {
    content_.clear();
    append(content_, bytes_of(part_header(part)));
    for (std::size_t i = 0; i < index_.items.size(); ++i) {
      const Range range = share(index_.items[i], part.worker, part.workers);
      append(content_, state.items()[i].data.slice(range.first, range.count).bytes());
    }
  }

  const std::string folder_;
  const CheckpointOptions options_;
  LocalFiles local_;
  std::unique_ptr<FileLock> lock_;  // of the folder, on worker 0, from the first save on
  Communicator* const comm_;        // null for one worker
  Peers peers_;
  Phase phase_ = Phase::kIdle;
  // Of the save under way; the job's while it runs.
  Index index_;
  std::vector<std::byte> content_;  // of this worker's part
  PartEntry entry_;
  std::optional<Error> error_;
  std::future<void> job_;  // last: its end is waited for first
};

std::string to_text(const Loaded& loaded) {
  const std::string text = fmt::format("{}: step {}, saved by {} worker{}", loaded.path,
                                       loaded.step, loaded.workers, loaded.workers == 1 ? "" : "s");
  return loaded.passed_over.empty() ? text : text + "; passed over: " + loaded.passed_over;
}

Checkpointer::Checkpointer(std::string folder, const CheckpointOptions& options)
    : impl_(std::make_unique<Impl>(std::move(folder), nullptr, options)) {}
Checkpointer::Checkpointer(std::string folder, Communicator& comm, const CheckpointOptions& options)
    : impl_(std::make_unique<Impl>(std::move(folder), &comm, options)) {}
Checkpointer::~Checkpointer() = default;

void Checkpointer::save(const State& state, std::int64_t step) { impl_->save(state, step); }
bool Checkpointer::poll() { return impl_->poll(); }
void Checkpointer::wait() { impl_->wait(); }
std::optional<Loaded> Checkpointer::load(const State& state, const LoadOptions& options) {
  return impl_->load(state, options);
}

}  // namespace motley::runtime
