// comm/control/locator.h: finds out from the controller where the members of a late call are.
#pragma once

#include "comm/control/client.h"
#include "comm/executor/watch.h"

namespace motley {

class Locator final : public Explainer {
 public:
  // A member without a sign of life for `silence` counts as stopped.
  Locator(ControlClient& control, Duration silence) : control_(control), silence_(silence) {}

  void ask(const Call& call) override;
  Diagnosis explain(const Call& call, TimePoint now) override;

 private:
  ControlClient& control_;
  Duration silence_;
};

}  // namespace motley
