#include "comm/executor/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/algorithm/families.h"

namespace motley {

std::string who(const Transport& transport, const Call& call, const char* algorithm) {
  const std::string text =
      fmt::format("rank {} of {}: {} #{}{}", transport.rank(), transport.size(), name(call.kind),
                  call.number, scope_text(call.group->tag()));
  if (call.kind == CallKind::kBarrier) return text;
  return text + fmt::format(" ({}, {} {})", algorithm,
                            varies(call.kind) ? call.in.count : call.agreed_count(),
                            name(call.out.dtype));
}

std::string to_text(const Fingerprint& f) {
  std::string text = name(f.kind);
  if (f.kind == CallKind::kBarrier) return text;
  text += fmt::format(" of count {} {}", f.count, name(f.dtype));
  if (reduces(f.kind)) text += fmt::format(", {}", name(f.op));
  if (has_root(f.kind)) text += fmt::format(", root {}", f.root);
  const auto& families = algorithms_of(f.kind);
  if (f.algorithm >= families.size()) return text + " (as a whole)";
  return text + fmt::format(" ({}, {} pieces)", families[f.algorithm].name, f.pieces);
}

}  // namespace motley
