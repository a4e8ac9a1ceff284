#include "moe/gate.h"

#include "moe/gate/hash_gate.h"
#include "moe/gate/learned_gate.h"

namespace motley::moe {

std::unique_ptr<Gate> make_gate(const GateOptions& options) {
  validate(options);
  if (options.kind == GateKind::kHash) return std::make_unique<gate::HashGate>(options);
  return std::make_unique<gate::LearnedGate>(options);
}

}  // namespace motley::moe
