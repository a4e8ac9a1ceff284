#include "test/bench/partial/method.h"

#include <fmt/format.h>

#include <sstream>

#include "comm/error.h"

namespace motley::bench {
namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& part) {
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("method {}: \"{}\" is not understood. See partial/method.h.", text, part));
}

void set_number(Method& method, int value) {
  runtime::SynchronizerOptions& options = method.options;
  if (method.name == "local_sgd") options.local_steps = value;
  if (method.name == "backup_workers") options.backup = value;
  if (method.name == "parameter_server") options.staleness = value;
  if (method.name == "eager_solo") options.sync_rounds = value;
  if (method.name == "partial_reduce" || method.name == "wait_avoiding") options.group_size = value;
}

bool set_option(Method& method, const std::string& key, const std::string& value) {
  PartialOptions& partial = method.options.partial;
  if (key == "all") {
    method.average_all = true;
  } else if (key == "bare") {
    method.average_bare = true;
  } else if (key == "silent") {
    method.options.announces = false;
  } else if (key == "damped") {
    partial.weighting.damped = true;
  } else if (key == "lambda") {
    partial.weighting.rule = WeightRule::kExponential;
    partial.weighting.lambda = std::stod(value);
  } else if (key == "rule" && value == "published") {
    partial.weighting.rule = WeightRule::kPublished;
  } else if (key == "rule" && value == "hinge") {
    partial.weighting.rule = WeightRule::kHinge;
  } else if (key == "rule" && value == "polynomial") {
    partial.weighting.rule = WeightRule::kPolynomial;
  } else if (key == "guard" && value == "none") {
    partial.guard = Guard::kNone;
  } else if (key == "largest") {
    partial.largest_group = std::stoi(value);
  } else if (key == "linger") {
    partial.linger = std::stod(value);
  } else if (key == "local") {
    partial.local_steps = std::stoi(value);
  } else {
    return false;
  }
  return true;
}

}  // namespace

Method parse_method(const std::string& text) {
  Method method;
  std::istringstream in(text);
  std::string part;
  std::getline(in, part, '+');
  const std::size_t colon = part.find(':');
  method.name = part.substr(0, colon);
  try {
    if (colon != std::string::npos) set_number(method, std::stoi(part.substr(colon + 1)));
    while (std::getline(in, part, '+')) {
      const std::size_t equals = part.find('=');
      const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
      if (!set_option(method, part.substr(0, equals), value)) refuse(text, part);
    }
  } catch (const std::logic_error&) {  // of std::stoi and std::stod
    refuse(text, part);
  }
  return method;
}

bool waits_for_slow(const Method& method) {
  return method.name == "all_reduce" || method.name == "local_sgd" ||
         method.name == "backup_workers" || method.name == "parameter_server";
}

}  // namespace motley::bench
