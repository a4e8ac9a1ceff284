// comm/kernel/cpu.h: what the processor that we run on can do.
#pragma once

namespace motley {

enum class VectorWidth { k128, k256, k512 };  // bits
VectorWidth vector_width() noexcept;

}  // namespace motley
