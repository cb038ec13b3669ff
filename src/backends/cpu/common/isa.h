// Which vector instructions the fast CPU kernels use.
//
//   scalar  none: the catalogue takes the reference kernels
//   avx2    AVX2 and FMA; products in f32
//   avx512  AVX-512 (F, BW, DQ, VL); products of bf16 in bf16 where the machine has AVX512_BF16
//   amx     as avx512, and products of bf16 on the tile unit
// Results are the same for any number of threads at one Isa; they may differ between two.
#pragma once

#include <optional>
#include <string_view>

#include "formats/dtype.h"

namespace octet::cpu {

enum class Isa { scalar, avx2, avx512, amx };

std::string_view isa_name(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);

// The best Isa of this machine.
Isa detect_isa();

// True if several products are faster than a division: Intel's divider takes 16 cycles for 16
// elements.
bool has_slow_divider();

// Lets Highway and oneDNN use at most `isa`, for the whole process: call before the first kernel is
// prepared. Isa::scalar changes nothing: its kernels use neither. Throws invalid_argument when the
// machine lacks `isa`, or when oneDNN has been used already and would go higher.
void limit_isa(Isa isa);

// The type in which the library multiplies bf16 operands fast under the current limit: bf16 or f32.
Dtype bf16_compute_dtype();

}  // namespace octet::cpu
