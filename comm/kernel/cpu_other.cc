// For processors of which we know nothing: the vectors and copies that the compiler chooses.
#include <atomic>
#include <cstring>

#include "comm/kernel/combine.h"
#include "comm/kernel/convert_parts.h"
#include "comm/kernel/cpu.h"

namespace motley {

VectorWidth vector_width() noexcept { return VectorWidth::k128; }
CombinePart combine_512(DType, ReduceOp) noexcept { return nullptr; }
CombinePart combine_256(DType, ReduceOp) noexcept { return nullptr; }
ConvertPart convert_512(DType, DType, double) noexcept { return nullptr; }
ConvertPart convert_256(DType, DType, double) noexcept { return nullptr; }
QuantizeParts quantize_512(DType) noexcept { return {}; }
QuantizeParts quantize_256(DType) noexcept { return {}; }

void copy_stream(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

void streams_done() noexcept { std::atomic_thread_fence(std::memory_order_release); }

}  // namespace motley
