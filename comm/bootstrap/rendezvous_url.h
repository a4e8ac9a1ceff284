// comm/bootstrap/rendezvous_url.h: what Options::controller says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/bootstrap/endpoint.h"

namespace motley {

struct RendezvousUrl {
  enum Scheme : std::uint8_t { kStarted, kInRankZero, kFile };
  Scheme scheme = kStarted;
  Endpoint endpoint;  // of tcp:// and rank0://
  std::string path;   // of file:

  // Throws kInvalid.
  static RendezvousUrl parse(const std::string& text);
};

// The texts between the commas, at least one.
std::vector<std::string> addresses_in(const std::string& list);

}  // namespace motley
