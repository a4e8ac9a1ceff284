/* The C interface, from C: one rank alone, or several under motley-run. Ends with 0 if all was
 * right, else with the line that was not. */
#include "comm/c_api.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, motley_error_text(comm)); \
      return 1;                                                                             \
    }                                                                                       \
  } while (0)

static int test_collectives(motley_comm* comm) {
  const int size = motley_size(comm), rank = motley_rank(comm);
  float data[3] = {1, 2, (float)rank};
  int64_t number = rank == 0 ? 42 : 0;
  CHECK(rank >= 0 && rank < size);
  CHECK(strcmp(motley_error_text(comm), "") == 0);
  CHECK(motley_all_reduce(comm, data, 3, MOTLEY_FLOAT32, MOTLEY_SUM) == MOTLEY_OK);
  CHECK(data[0] == (float)size && data[1] == 2 * (float)size);
  CHECK(data[2] == (float)(size * (size - 1) / 2));
  CHECK(motley_broadcast(comm, &number, 1, MOTLEY_INT64, 0) == MOTLEY_OK && number == 42);
  CHECK(motley_all_reduce(comm, NULL, 0, MOTLEY_INT8, MOTLEY_MAX) == MOTLEY_OK);
  CHECK(motley_barrier(comm) == MOTLEY_OK);
  CHECK(motley_all_reduce(comm, data, 3, 99, MOTLEY_SUM) == MOTLEY_INVALID);
  CHECK(strstr(motley_error_text(comm), "99") != NULL);
  CHECK(motley_all_reduce(comm, data, 3, MOTLEY_FLOAT32, 99) == MOTLEY_INVALID);
  CHECK(motley_broadcast(comm, data, 3, MOTLEY_FLOAT32, size) == MOTLEY_INVALID);
  return 0;
}

static int test_partial_reduce(motley_comm* comm) {
  const int size = motley_size(comm);
  double model[2] = {motley_rank(comm), 1}, sum;
  int32_t members[64];
  motley_average average = {members, 0, -1, -1};
  motley_reducer* reducer = NULL;
  const double bad[4] = {-1, 1e300, INFINITY, NAN};
  int i, step;
  for (i = 0; i < 4; ++i) {
    CHECK(motley_reducer_create(comm, 2, bad[i], &reducer) == MOTLEY_INVALID && reducer == NULL);
    CHECK(strstr(motley_error_text(comm), "timeout_seconds is") != NULL);
    CHECK(strstr(motley_error_text(comm), "Use 0 to ") != NULL);
  }
  CHECK(motley_reducer_create(comm, size == 1 ? 2 : -1, 0, &reducer) ==
        (size == 1 ? MOTLEY_OK : MOTLEY_INVALID));
  CHECK((reducer != NULL) == (size == 1));
  motley_reducer_destroy(reducer);
  CHECK(motley_reducer_create(comm, 2, 1e6, &reducer) == MOTLEY_OK);
  motley_reducer_destroy(reducer);
  CHECK(motley_reducer_create(comm, 2, 20, &reducer) == MOTLEY_OK);
  for (step = 0; step < 5 + motley_rank(comm); ++step) {
    CHECK(motley_reducer_average(reducer, model, 2, MOTLEY_FLOAT64, step, &average) == MOTLEY_OK);
    CHECK(average.size >= 1 && average.size <= size && average.waiting_seconds >= 0);
    CHECK(model[1] == 1);
  }
  CHECK(motley_reducer_average(reducer, model, 2, MOTLEY_FLOAT64, step, NULL) == MOTLEY_OK);
  CHECK(motley_reducer_leave(reducer) == MOTLEY_OK);
  CHECK(motley_reducer_average(reducer, model, 2, MOTLEY_FLOAT64, step, NULL) == MOTLEY_INVALID);
  CHECK(strstr(motley_error_text(comm), "leave") != NULL);
  motley_reducer_destroy(reducer);
  sum = model[0];
  CHECK(motley_all_reduce(comm, &sum, 1, MOTLEY_FLOAT64, MOTLEY_SUM) == MOTLEY_OK);
  CHECK(sum > size * (size - 1) / 2.0 - 1e-9 && sum < size * (size - 1) / 2.0 + 1e-9);
  return 0;
}

static int test_pieces(motley_comm* comm) {
  const int size = motley_size(comm);
  double model[4] = {1, 2, 3, 4};
  motley_average average = {NULL, 0, -1, -1};
  motley_reducer* reducer = NULL;
  int step;
  CHECK(motley_reducer_create_in_pieces(comm, 2, 20, 16, &reducer) == MOTLEY_OK);
  CHECK(motley_reducer_ready(reducer, 0, 1) == MOTLEY_INVALID);
  CHECK(motley_reducer_finish(reducer, NULL) == MOTLEY_INVALID);
  for (step = 0; step < 5; ++step) {
    CHECK(motley_reducer_begin(reducer, model, 4, MOTLEY_FLOAT64, step) == MOTLEY_OK);
    CHECK(motley_reducer_ready(reducer, 2, 2) == MOTLEY_OK);
    CHECK(motley_reducer_ready(reducer, 3, 1) == MOTLEY_INVALID);
    CHECK(motley_reducer_ready(reducer, 0, 2) == MOTLEY_OK);
    CHECK(motley_reducer_finish(reducer, step % 2 == 0 ? &average : NULL) == MOTLEY_OK);
    CHECK(average.size >= 1 && average.size <= size);
    CHECK(model[0] == 1 && model[1] == 2 && model[2] == 3 && model[3] == 4);
  }
  CHECK(motley_reducer_leave(reducer) == MOTLEY_OK);
  motley_reducer_destroy(reducer);
  return 0;
}

int main(void) {
  motley_comm* comm = NULL;
  int failed;
  if (motley_init(&comm) != MOTLEY_OK) {
    fprintf(stderr, "%s\n", motley_error_text(comm));
    return 1;
  }
  failed = test_collectives(comm) || test_partial_reduce(comm) || test_pieces(comm);
  motley_finalize(comm);
  motley_finalize(NULL);
  return failed;
}
