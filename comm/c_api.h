/* comm/c_api.h: collectives and partial-reduce for C, and for languages that call C.
 *
 *   motley_comm* comm;
 *   motley_reducer* reducer;
 *   if (motley_init(&comm) != MOTLEY_OK) { fprintf(stderr, "%s\n", motley_error_text(comm)); … }
 *   motley_reducer_create(comm, 2, 0, &reducer);
 *   for (step = 0; step < steps; ++step) {
 *     train_locally(model);
 *     motley_reducer_average(reducer, model, count, MOTLEY_FLOAT32, step, NULL);
 *   }
 *   motley_reducer_leave(reducer);
 *   motley_reducer_destroy(reducer);
 *   motley_finalize(comm);
 *
 * Calls return when they are complete, and MOTLEY_OK or why not; motley_error_text() says the rest.
 * Nothing is thrown. Memory is the host's. One thread at a time for each communicator, reducers of
 * it included. What each call means is said by comm/communicator.h and comm/partial_reduce.h.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ErrorCode of comm/error.h, and success. */
typedef enum {
  MOTLEY_OK = 0,
  MOTLEY_INVALID = 1,
  MOTLEY_MISMATCH = 2,
  MOTLEY_TIMEOUT = 3,
  MOTLEY_PEER_LOST = 4,
  MOTLEY_ABORTED = 5,
  MOTLEY_UNAVAILABLE = 6,
  MOTLEY_IO = 7
} motley_status;

/* Ints, so that a value that is none of these is an error, and no undefined behaviour. */
typedef int motley_dtype;
enum {
  MOTLEY_FLOAT64 = 0,
  MOTLEY_FLOAT32 = 1,
  MOTLEY_FLOAT16 = 2,
  MOTLEY_BFLOAT16 = 3,
  MOTLEY_INT8 = 4,
  MOTLEY_INT16 = 5,
  MOTLEY_INT32 = 6,
  MOTLEY_INT64 = 7
};

typedef int motley_op;
enum { MOTLEY_SUM = 0, MOTLEY_PRODUCT = 1, MOTLEY_MIN = 2, MOTLEY_MAX = 3, MOTLEY_AVERAGE = 4 };

typedef struct motley_comm motley_comm;
typedef struct motley_reducer motley_reducer;

/* Joins the job that the environment tells of, as one of its ranks. *comm is set, for the error's
 * text, even if that fails, and is to be finalised; it is null where memory has run out. */
motley_status motley_init(motley_comm** comm);
/* Ends this rank's part, after its reducers are destroyed. Null does nothing. */
void motley_finalize(motley_comm* comm);

int motley_rank(const motley_comm* comm); /* -1, if it has not joined */
int motley_size(const motley_comm* comm); /* 0, if it has not joined */
/* Of the last call on this communicator, or on a reducer of it, that failed: "" if none has. Valid
 * until the next one that does. */
const char* motley_error_text(const motley_comm* comm);

/* data [count] becomes op over all ranks, in place. */
motley_status motley_all_reduce(motley_comm* comm, void* data, size_t count, motley_dtype dtype,
                                motley_op op);
/* data [count] of `root` is copied to all ranks. */
motley_status motley_broadcast(motley_comm* comm, void* data, size_t count, motley_dtype dtype,
                               int root);
motley_status motley_barrier(motley_comm* comm);

/* group_size as PartialOptions::group_size; timeout_seconds of each average, 0 to 1e6, the
 * communicator's if 0. MOTLEY_INVALID for others. *reducer is null if this fails. */
motley_status motley_reducer_create(motley_comm* comm, int group_size, double timeout_seconds,
                                    motley_reducer** reducer);
/* Of the group that data [count] was averaged with, in place. `members`, if not null, has room for
 * motley_size() ranks, and gets them, ascending. */
typedef struct {
  int32_t* members;
  int32_t size;           /* of the group; 1: nobody was left */
  double waiting_seconds; /* until the group was known */
  double averaging_seconds;
} motley_average;
/* `average` may be null. */
motley_status motley_reducer_average(motley_reducer* reducer, void* data, size_t count,
                                     motley_dtype dtype, int64_t step, motley_average* average);
/* The same while the rest of a step is still computed, with a reducer that averages in pieces of so
 * many bytes (PartialOptions::piece_bytes):
 *
 *   motley_reducer_begin(reducer, model, count, MOTLEY_FLOAT32, step);
 *   for (layer = layers; layer-- > 0;) {
 *     backward_and_update(layer);
 *     motley_reducer_ready(reducer, first[layer], elements[layer]);
 *   }
 *   motley_reducer_finish(reducer, NULL);
 */
motley_status motley_reducer_create_in_pieces(motley_comm* comm, int group_size,
                                              double timeout_seconds, size_t piece_bytes,
                                              motley_reducer** reducer);
motley_status motley_reducer_begin(motley_reducer* reducer, void* data, size_t count,
                                   motley_dtype dtype, int64_t step);
/* Elements [first, first + count) will not change any more in this step. */
motley_status motley_reducer_ready(motley_reducer* reducer, size_t first, size_t count);
/* `average` may be null. */
motley_status motley_reducer_finish(motley_reducer* reducer, motley_average* average);
/* This rank makes no more steps; the others go on. */
motley_status motley_reducer_leave(motley_reducer* reducer);
/* Leaves, if motley_reducer_leave() was not called. Null does nothing. */
void motley_reducer_destroy(motley_reducer* reducer);

#ifdef __cplusplus
}
#endif
