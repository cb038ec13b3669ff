// What number formats hold of numbers of every size, without any scale.
#pragma once

#include "formats/dtype.h"
#include "study/study.h"

namespace octet {

// Signal to noise, dB, of n_samples draws from N(0, sigma^2) that the format stores unscaled,
// rounded to nearest and saturating.
double snr_of_normal(Dtype dtype, double log2_sigma, int64_t n_samples = int64_t{1} << 20);

// Figures "significand_bits" (over the exponent; Luo et al. 2024, figure 1) and "snr" (over log2
// sigma) of all formats of elements.
Study study_formats(int64_t n_samples);

}  // namespace octet
