// comm/control/local_control.h: a controller for ranks that are threads of one process. No sockets:
// the same state machine and the same client as between hosts, joined by a queue.
//
//   LocalControl control(4);
//   std::unique_ptr<ControlClient> client = control.connect(rank);   // in each of four threads
#pragma once

#include <memory>
#include <string>

#include "comm/clock.h"
#include "comm/control/client.h"

namespace motley {

class LocalControl {
 public:
  // Threads share the fate of their process, so the lease is for tests that silence a rank on
  // purpose.
  explicit LocalControl(int size, Duration lease = seconds(60), Clock& clock = Clock::real());
  LocalControl(const LocalControl&) = delete;
  LocalControl& operator=(const LocalControl&) = delete;
  ~LocalControl();  // the clients are gone by then

  // Admits `rank`; once for each rank.
  std::unique_ptr<ControlClient> connect(int rank);
  // See ControllerServer::report_lost.
  void report_lost(int rank, const std::string& why);

 private:
  struct Hub;
  std::unique_ptr<Hub> hub_;
};

}  // namespace motley
