// test/support/errors.h: what a call that must fail says.
//
//   expect_error(ErrorCode::kMismatch, {"4096", "1024"}, [&] { comm.all_reduce(data, op).wait();
//   });
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/error.h"

namespace motley::test {

// `call` throws an Error with `code` whose text has all `facts`.
template <class Call>
void expect_error(ErrorCode code, const std::vector<std::string>& facts, Call&& call) {
  try {
    (void)call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& fact : facts) EXPECT_THAT(error.what(), testing::HasSubstr(fact));
    return;
  }
  ADD_FAILURE() << "nothing was thrown";
}

// What cannot be right is refused, whatever is said of it.
template <class Call>
void expect_invalid(Call&& call) {
  expect_error(ErrorCode::kInvalid, {}, call);
}

}  // namespace motley::test
