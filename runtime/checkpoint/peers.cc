#include "runtime/checkpoint/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace motley::runtime {
namespace {

// What a worker tells the others of its error.
struct Report {
  std::int64_t failed = 0;
  std::int64_t code = 0;
  char text[496] = {};  // cut to this, and a zero
};

}  // namespace

std::optional<Error> attempt(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kIo, fmt::format("checkpoint: {}", error.what()));
  }
  return std::nullopt;
}

std::optional<Error> Peers::exchange(const std::optional<Error>& own) {
  if (comm_ == nullptr || size() == 1) return own;
  Report report;
  if (own) {
    const std::string text = own->what();
    report.failed = 1;
    report.code = static_cast<std::int64_t>(own->code());
    std::copy_n(text.begin(), std::min(text.size(), sizeof report.text - 1), report.text);
  }
  std::vector<Report> reports(static_cast<std::size_t>(size()));
  const auto bytes = [](Report* first, std::size_t count) {
    return View(reinterpret_cast<std::byte*>(first), count * sizeof(Report), DType::kInt8);
  };
  comm_->all_gather(bytes(&report, 1), bytes(reports.data(), reports.size()), call_).wait();
  if (own) return own;
  for (std::size_t worker = 0; worker < reports.size(); ++worker) {
    const Report& other = reports[worker];
    if (other.failed == 0) continue;
    return Error(static_cast<ErrorCode>(other.code),
                 fmt::format("worker {}: {}", worker, other.text));
  }
  return std::nullopt;
}

void Peers::agree(const std::optional<Error>& own) {
  if (const auto error = exchange(own)) throw *error;
}

bool Peers::all(bool own) {
  if (comm_ == nullptr) return own;
  std::vector<std::int8_t> ready = {static_cast<std::int8_t>(own)};
  comm_->all_reduce(ready, ReduceOp::kMin, call_).wait();
  return ready[0] != 0;
}

void Peers::take_first(std::vector<std::int64_t>& values) {
  if (comm_ == nullptr) return;
  std::vector<std::int64_t> count = {static_cast<std::int64_t>(values.size())};
  comm_->broadcast(count, 0, call_).wait();
  values.resize(static_cast<std::size_t>(count[0]));
  comm_->broadcast(values, 0, call_).wait();
}

std::vector<std::int64_t> Peers::gather(const std::vector<std::int64_t>& own) {
  if (comm_ == nullptr) return own;
  std::vector<std::int64_t> all(own.size() * static_cast<std::size_t>(size()));
  comm_->all_gather(own, all, call_).wait();
  return all;
}

}  // namespace motley::runtime
