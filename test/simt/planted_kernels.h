// test/simt/planted_kernels.h: kernels with one fault or cost each, and their twins that have none.
#pragma once

#include "comm/device.h"

namespace motley::test {

enum class Planted { kYes, kNo };

// All are of one block of `kPlantedThreads` threads, on floats in device memory: at least as many.
constexpr unsigned kPlantedThreads = 64;

// Neighbours exchange through shared memory; planted: without a barrier between.
void neighbours(float* data, Planted fault);
// Lanes of a warp exchange through shared memory; planted: without __syncwarp.
void lanes_share(float* data, Planted fault);
// Each block adds to data[0]; planted: without an atomic.
void blocks_add(float* data, Planted fault);
// The last of three blocks reads what the others left; planted: without __threadfence.
void last_block_reads(float* data, Planted fault);
// The last thread waits at a barrier; planted: only threads below the last.
void barrier_for_some(float* data, Planted fault);
// Planted: half of the threads wait at a barrier that the others have returned before.
void barrier_after_return(float* data, Planted fault);
// Planted: even and odd threads wait at two barriers.
void two_barriers(float* data, Planted fault);
// Planted: lanes 0 to 15 name all lanes, the others only themselves.
void half_a_shuffle(float* data, Planted fault);
// Planted: lane 0 names a mask without itself.
void mask_without_self(float* data, Planted fault);
// Planted: one of the lanes that run together has left when they meet.
void leaver_of_a_group(float* data, Planted fault);
// Reads all of a shared array; planted: of which one element is never written.
void hole_in_shared(float* data, Planted fault);
// The same of what the launch asks for.
void hole_in_dynamic(float* data, Planted fault);
// Planted: data[kPlantedThreads], one too far in a buffer of that many; before: data[-1].
void one_too_far(float* data, Planted fault);
void one_before(float* data, Planted fault);
// Planted: one element beyond the dynamic shared memory; of a shared array.
void beyond_dynamic(float* data, Planted fault);
void beyond_array(float* data, Planted fault);
// Planted: touches `host`, which is no device's memory.
void touches(float* data, const float* host, Planted fault);

// Words and vectors, read and written; planted: four bytes off a multiple of their size.
void words_of_8(float* data, Planted fault);
void words_of_16(float* data, Planted fault);
void vectors_of_2(float* data, Planted fault);
void vectors_of_4(float* data, Planted fault);
// Only one of both is off.
void reads_of_2(float* data, Planted fault);
void reads_of_4(float* data, Planted fault);
void writes_of_2_doubles(float* data, Planted fault);
// Atomics on four floats, and on two halves, these two bytes off.
void adds_of_4(float* data, Planted fault);
void adds_of_2_halves(float* data, Planted fault);

// Block b of three: data[1 + b] = data[0], a barrier, then data[0] grows by 1.
void reads_meets_adds(float* data);

// Costs, and atomics of vectors.
void atomics_by_four(float* data);  // each of three blocks' threads adds 1, 2, 3, 4
void strided(float* out, const float* in, int stride);            // reads in[stride * i]
void conflicting(float* out, int stride);                         // of shared memory, stride floats
void histogram(unsigned* bins, unsigned spread);                  // atomics on i % spread
void shared_histogram(unsigned* bins, unsigned spread);           // in shared memory first
void forked(float* data, int lanes);                              // lanes below go another way
void loops(float* data, int longest);                             // lane i goes i % longest times
void copied_by_four(float* out, const float* in, std::size_t n);  // as float4

}  // namespace motley::test
