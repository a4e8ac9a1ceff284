// test/moe/layer_cases.h: inputs and comparisons shared by the tests of the reference layer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "comm/error.h"
#include "moe/reference_layer.h"

namespace motley::moe {

using Numbers = std::vector<double>;

// `count` numbers, uniform in [-1, 1), the same on every machine.
inline Numbers random_numbers(std::size_t count, std::mt19937_64& random) {
  Numbers numbers(count);
  for (double& number : numbers) number = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
  return numbers;
}

// A layer whose parameters are uniform in [-1, 1).
inline ReferenceLayer random_layer(const LayerOptions& options, std::mt19937_64& random) {
  ReferenceLayer layer(options);
  const Numbers values = random_numbers(layer.values().size(), random);
  std::copy(values.begin(), values.end(), layer.values().begin());
  return layer;
}

inline void set(ReferenceLayer& layer, const std::string& name, const Numbers& values) {
  const std::span<double> place = layer.parameter(name).of(layer.values());
  ASSERT_EQ(place.size(), values.size()) << name;
  std::copy(values.begin(), values.end(), place.begin());
}

inline Numbers get(const ReferenceLayer& layer, const std::string& name,
                   std::span<const double> flat) {
  const std::span<const double> place = layer.parameter(name).of(flat);
  return {place.begin(), place.end()};
}

// |got - want| <= relative * max(1, |want|), element by element.
inline void expect_near(std::span<const double> got, std::span<const double> want, double relative,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], relative * std::max(1.0, std::abs(want[i])))
        << what << ", element " << i;
  }
}

// Runs `body`, which must throw kInvalid with all of `facts` in its message.
template <class Body>
void expect_invalid(Body body, const std::vector<std::string>& facts) {
  try {
    body();
    ADD_FAILURE() << "no error; expected one about " << facts.front();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid) << error.what();
    for (const std::string& fact : facts) {
      EXPECT_NE(std::string(error.what()).find(fact), std::string::npos)
          << '"' << fact << "\" is not in: " << error.what();
    }
  }
}

}  // namespace motley::moe
