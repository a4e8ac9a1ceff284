// wide/device/kernels.h: what runs on a device, as functions that put it into a stream. All memory
// that they name is the device's. Models: linear ones, FM and FwFM with up to kMostFactors factors,
// FFM with as many as a block has shared memory for; optimizers: SGD, AdaGrad, FTRL, Adam.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/device.h"
#include "wide/device/batch.h"
#include "wide/model.h"

namespace motley::wide {

// Of an FM or an FwFM: a warp has four factors a lane.
inline constexpr std::uint32_t kMostFactors = 128;

// A state (Layout) in device memory.
struct DeviceState {
  float* shared = nullptr;
  float* linear = nullptr;
  float* factors = nullptr;
  std::uint32_t slots = 0;
  std::uint32_t shared_stride = 0;  // between planes of what all samples share
  std::uint32_t width = 0;          // factors of a slot as stored; 0: a linear model
  std::uint32_t fields = 0;         // 0: a model that does not look at fields
  std::uint32_t quads = 0;          // factors by four: of an FFM those for a field, else all
  std::uint32_t pairs = 0;          // of fields, whose weights all samples share; only of an FwFM
  int planes = 1;

  constexpr bool is_ffm() const noexcept { return fields > 0 && pairs == 0; }
  // An FFM's slot has so many quads, and fillers.
  constexpr std::uint32_t quads_of_fields() const noexcept { return fields * quads; }
};
DeviceState state_at(float* state, const Layout& layout) noexcept;

// How a batch is learnt.
struct DeviceJob {
  DeviceState state;
  Loss loss = Loss::kLogistic;
  Optimizer optimizer = Optimizer::kAdaGrad;
  Rates linear;
  Rates factors;
  Rates shared;
  bool complete = false;  // every sample has exactly one edge of each field
};

// What the samples of a batch sum up to, kept between the kernels of by_batch.
struct DeviceSums {
  float* sums = nullptr;     // [rows][sum_floats()]
  float* slopes = nullptr;   // [rows][2]: the loss by the score, and the value of all its edges
  double* losses = nullptr;  // [rows]
  float* partial = nullptr;  // [pieces][width + 4]: gradients of pieces; behind factors, linear
  float* pairs = nullptr;    // [chunks_of(rows)][pairs]: gradients of what an FwFM's samples share
  float* scores = nullptr;   // [rows], or null; then nothing else is written
};
// Of so many rows gradients by pairs are added up at once.
inline constexpr std::uint32_t kChunkRows = 32;
constexpr std::uint32_t chunks_of(std::uint32_t rows) {
  return (rows + kChunkRows - 1) / kChunkRows;
}
// An FM's sums of factors; an FFM's tile of field sums; what each field of an FwFM's row is sent.
std::size_t sum_floats(const DeviceState& state) noexcept;

// Deterministic: sums and slopes of all rows; gradients of long segments, piece by piece; then each
// slot is updated once. No atomics, and the same bits for any number of blocks. `blocks`: of each
// grid; 0: what suits the batch.
//   bytes  FM, a row of m features, k factors: read m (4 + 4 + 4k) and written 4k + 12; then, an
//          edge, 8 + 4k read, and a slot's planes read and written once
void forward_on_device(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                       StreamRef stream, unsigned blocks = 0);
void update_on_device(const DeviceJob& job, const BatchArrays& batch, const DeviceSums& sums,
                      StreamRef stream, unsigned blocks = 0);
// Updates what all samples share, and adds the losses of the batch to *loss.
void update_shared_on_device(const DeviceJob& job, std::uint32_t rows, const DeviceSums& sums,
                             double* loss, StreamRef stream);

// Asynchronous: gather, score, scatter and update in one pass over tiles of rows x {hot, cold}.
struct FlowShape {
  unsigned blocks = 1;             // that share the model
  std::uint32_t tile_rows = 1024;  // between two updates of hot slots by a block
  std::uint32_t step_rows = 64;    // and of the hottest, which most rows have
  std::uint32_t hottest = 64;      // slots below it are the hottest
  std::uint32_t hot = 0;           // slots below it are hot
  std::uint32_t replicas = 1;      // of the gradients of hot slots
  // Hot slots' gradients are added up by owners, without atomics, from a batch with windows of
  // step_rows rows of `hot` slots; tile_rows is a multiple of that. An eighth of the atomics, for
  // 25 to 34 sectors more a row. Linear models and FM: of an FFM a window's tiles do not fit.
  bool by_feature = false;
};
// Bytes of a block's shared memory that `shape` needs.
std::size_t flow_shared_bytes(const DeviceState& state, const FlowShape& shape) noexcept;
// A shape that suits the model: as many hot slots, up to 2,048, as a block's shared memory holds.
// SGD, whose steps grow with the rows that they sum up, makes more of them. All blocks that the
// rows have tiles for share the model; see blocks_after(). `shared_bytes`: what a block may have;
// 0: on the current device. Throws kInvalid where that does not hold a row of fields.
FlowShape flow_shape(const DeviceJob& job, std::uint32_t rows, std::size_t shared_bytes = 0,
                     bool by_feature = false);
// So many of the shape's blocks may share a model that has learnt `rows` rows. A block steps hot
// slots without what others learn meanwhile, blocks x step_rows rows: too far, as all go the same
// way. That must be a small part (a 64th) of what AdaGrad's sums, which shorten steps, are made of.
unsigned blocks_after(const FlowShape& shape, std::uint64_t rows) noexcept;
// A row's slots are updated as it is scored: cold ones in the state at once; hot ones by sums of
// gradients, which a block keeps in shared memory beside the weights as they were when they began:
// the hottest every step_rows rows, twice as many slots every second time, and so on, all at the
// end of a tile. Adds the losses, each before its row changed anything, to *loss.
//   bytes  a cold slot of FM: read 4k + 8 to gather and 4k to update, added to by atomics 8k + 8
void flow_on_device(const DeviceJob& job, const BatchArrays& batch, const FlowShape& shape,
                    double* loss, StreamRef stream);

}  // namespace motley::wide
