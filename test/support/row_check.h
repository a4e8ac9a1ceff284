// test/support/row_check.h: what kernels noted of the indices of rows.
#pragma once

#include "comm/rows.h"

namespace motley::test {

// Throws as RowCheck::verify(), everything before in `stream` done.
inline void fetch_and_verify(RowCheck& check, StreamRef stream) {
  check.fetch(stream);
  synchronize(stream);
  check.verify();
}

}  // namespace motley::test
