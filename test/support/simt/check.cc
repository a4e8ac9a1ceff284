#include "test/support/simt/check.h"

#include <map>
#include <mutex>

#include "comm/error.h"
#include "test/support/device_world.h"
#include "test/support/simt/checker.h"
#include "test/support/simt/watch.h"

namespace motley::simt {
namespace {

// What checked() gathers. Its mutex also keeps kernels apart while they are watched.
struct Watch {
  std::mutex mutex;
  bool on = false;
  std::vector<Fault> faults;
  std::map<std::string, KernelReport> kernels;
};

Watch& watch() {
  static Watch the;
  return the;
}

void set_watch(bool on) {
  const std::lock_guard lock(watch().mutex);
  watch().on = on;
}

void finish_all() {
  test::DeviceWorld& world = test::DeviceWorld::get();
  for (int device = 0; device < device_count(); ++device) world.streams.wait_for_device(device);
}

}  // namespace

void run_watched(const Shape& shape, const Call& call, const std::function<void(Observer*)>& grid) {
  std::unique_lock lock(watch().mutex);
  if (!watch().on) {
    lock.unlock();
    return grid(nullptr);
  }
  Checker checker(shape, call, test::DeviceWorld::get().heap.all());
  try {
    grid(&checker);
  } catch (const Error&) {  // which is among the faults
  }
  const KernelReport report = checker.report();
  KernelReport& sum = watch().kernels[report.name];
  sum.name = report.name;
  sum += report;
  const auto& faults = checker.faults();
  watch().faults.insert(watch().faults.end(), faults.begin(), faults.end());
}

Report checked(const std::function<void()>& body) {
  finish_all();
  watch().faults.clear();
  watch().kernels.clear();
  set_watch(true);
  try {
    body();
  } catch (...) {
    set_watch(false);
    throw;
  }
  finish_all();
  set_watch(false);
  Report report{.faults = watch().faults, .kernels = {}};
  for (const auto& [name, kernel] : watch().kernels) report.kernels.push_back(kernel);
  return report;
}

}  // namespace motley::simt
