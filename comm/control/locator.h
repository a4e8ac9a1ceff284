// comm/control/locator.h: finds out from the controller where the members of a late call are.
#pragma once

#include <string>

#include "comm/control/client.h"
#include "comm/executor/watch.h"

namespace motley {

class Locator final : public Explainer {
 public:
  // `options` outlives it.
  Locator(ControlClient& control, const Options& options) : control_(control), options_(options) {}

  void ask(const Call& call) override;
  Diagnosis explain(const Call& call, TimePoint now) override;

  // Has the calls of all ranks written to the folder Options::dump, if there is one. Says where, or
  // why not; any thread.
  std::string dump(const std::string& name, const std::string& why);

 private:
  ControlClient& control_;
  const Options& options_;
};

}  // namespace motley
