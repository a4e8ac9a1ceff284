#include "test/support/simulated_disk.h"

#include <algorithm>
#include <utility>

#include "comm/error.h"

namespace motley::test {
namespace {

std::size_t draw(std::mt19937_64& random, std::size_t most) {
  return std::uniform_int_distribution<std::size_t>(0, most)(random);
}

}  // namespace

class SimulatedDisk::Handle final : public runtime::File {
 public:
  Handle(SimulatedDisk& disk, int node) : disk_(disk), node_(static_cast<std::size_t>(node)) {}

  void write(ConstBytes bytes) override {
    const std::scoped_lock lock(disk_.mutex_);
    std::vector<std::byte>& to = disk_.content_.nodes[node_].bytes;
    std::size_t written = bytes.size();
    try {
      disk_.count("write");
    } catch (...) {
      written = disk_.calls_ == disk_.fail_at_ ? draw(disk_.random_, bytes.size()) : 0;
      to.insert(to.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(written));
      throw;
    }
    to.insert(to.end(), bytes.begin(), bytes.end());
  }

  void sync() override {
    const std::scoped_lock lock(disk_.mutex_);
    disk_.count("sync");
    Content::Node& node = disk_.content_.nodes[node_];
    node.synced = node.bytes.size();
  }

 private:
  SimulatedDisk& disk_;
  std::size_t node_;
};

class SimulatedDisk::Lock final : public runtime::FileLock {
 public:
  Lock(SimulatedDisk& disk, std::string path) : disk_(disk), path_(std::move(path)) {
    const std::scoped_lock lock(disk_.mutex_);
    if (disk_.locked_.insert(path_).second) return;
    throw Error(ErrorCode::kUnavailable, path_ + " is locked on the simulated disk. End its user.");
  }
  ~Lock() override {
    const std::scoped_lock lock(disk_.mutex_);
    disk_.locked_.erase(path_);
  }

 private:
  SimulatedDisk& disk_;
  const std::string path_;
};

void SimulatedDisk::fail_at(int call, Fault fault, std::uint64_t seed) {
  const std::scoped_lock lock(mutex_);
  calls_ = 0;
  fail_at_ = call;
  fault_ = fault;
  random_.seed(seed);
}

int SimulatedDisk::calls() const {
  const std::scoped_lock lock(mutex_);
  return calls_;
}

SimulatedDisk::Content SimulatedDisk::content() const {
  const std::scoped_lock lock(mutex_);
  return content_;
}

SimulatedDisk::Content SimulatedDisk::after(Loss loss, std::mt19937_64& random) const {
  Content content = this->content();
  if (loss == Loss::kNothing) return content;
  const bool all = loss == Loss::kAll;
  content.names = content.durable;
  for (const Content::Change& change : content.changes) {
    if (all || draw(random, 1) == 0) continue;
    content.names.erase(change.path);
    if (change.node >= 0) content.names[change.path] = change.node;
  }
  for (Content::Node& node : content.nodes) {
    const std::size_t unsynced = node.bytes.size() - node.synced;
    const std::size_t kept = node.synced + (all ? 0 : draw(random, unsynced));
    if (all || draw(random, 1) == 0) {
      node.bytes.resize(kept);
    } else {
      std::fill(node.bytes.begin() + static_cast<std::ptrdiff_t>(kept), node.bytes.end(),
                std::byte{0});
    }
    node.synced = node.bytes.size();
  }
  content.durable = content.names;
  content.changes.clear();
  return content;
}

void SimulatedDisk::count(const std::string& what) {
  ++calls_;
  const bool fails =
      fail_at_ > 0 && (fault_ == Fault::kPowerCut ? calls_ >= fail_at_ : calls_ == fail_at_);
  if (!fails) return;
  throw Error(ErrorCode::kIo, what + ": the simulated disk fails at call " +
                                  std::to_string(calls_) + ". This is the test's wish.");
}

int SimulatedDisk::node_of(const std::string& path) const {
  const auto found = content_.names.find(path);
  if (found == content_.names.end()) {
    throw Error(ErrorCode::kIo, path + " is not on the simulated disk. Look at its name.");
  }
  return found->second;
}

void SimulatedDisk::set(const std::string& path, int node) {
  content_.names.erase(path);
  if (node >= 0) content_.names[path] = node;
  content_.changes.push_back({path, node});
}

std::unique_ptr<runtime::FileLock> SimulatedDisk::lock(const std::string& path) {
  return std::make_unique<Lock>(*this, path);
}

std::unique_ptr<runtime::File> SimulatedDisk::create(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count("create " + path);
  content_.nodes.emplace_back();
  const int node = static_cast<int>(content_.nodes.size()) - 1;
  set(path, node);
  return std::make_unique<Handle>(*this, node);
}

void SimulatedDisk::rename(const std::string& from, const std::string& to) {
  const std::scoped_lock lock(mutex_);
  count("rename " + from);
  set(to, node_of(from));
  set(from, -1);
}

void SimulatedDisk::remove(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count("remove " + path);
  node_of(path);
  set(path, -1);
}

void SimulatedDisk::make_folder(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count("make folder " + path);
}

void SimulatedDisk::sync_folder(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  count("sync folder " + path);
  for (const Content::Change& change : content_.changes) {
    content_.durable.erase(change.path);
    if (change.node >= 0) content_.durable[change.path] = change.node;
  }
  content_.changes.clear();
}

std::vector<std::string> SimulatedDisk::list(const std::string& folder) const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [path, node] : content_.names) {
    if (path.starts_with(folder + "/")) names.push_back(path.substr(folder.size() + 1));
  }
  return names;
}

std::vector<std::byte> SimulatedDisk::read(const std::string& path) const {
  const std::scoped_lock lock(mutex_);
  return content_.nodes[static_cast<std::size_t>(node_of(path))].bytes;
}

}  // namespace motley::test
