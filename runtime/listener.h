// runtime/listener.h: a thread that hears what other workers send while this one computes. Letters
// are short messages; what follows one, the hearer receives itself.
//
//   Listener listener(lines, {1, 2, 3}, patience, hearer);   // hearer.heard(2, letter), …
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "comm/error.h"
#include "comm/request.h"
#include "runtime/lines.h"

namespace motley::runtime {

using Letter = std::array<std::int64_t, 2>;
inline View view_of(Letter& letter) noexcept { return std::span<std::int64_t>(letter); }

// Called on the listener's thread.
class Hearer {
 public:
  // True if more is to come from that worker.
  virtual bool heard(int from, const Letter& letter) = 0;
  // Nothing more comes from it: it is dead, silent for longer than the listener's patience, or
  // heard() threw `error`.
  virtual void lost(int from, const Error& error) noexcept = 0;

 protected:
  ~Hearer() = default;
};

class Listener {
 public:
  // `lines` and `hearer` must outlive this.
  Listener(const Lines& lines, std::vector<int> peers, Duration patience, Hearer& hearer);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();  // stops

  // What has not been heard is not heard any more. Not from heard() or lost().
  void stop() noexcept;

 private:
  void run();
  bool hear(std::size_t index);
  Request expect(int from);

  const Lines& lines_;
  Duration patience_;
  Hearer& hearer_;
  std::map<int, Letter> letters_;  // by peer
  std::mutex mutex_;               // of changes of the rest
  std::vector<int> peers_;
  std::vector<Request> requests_;  // of peers_
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace motley::runtime
