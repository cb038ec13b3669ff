// Precision of number formats for numbers of every size, without any scale.
#pragma once

#include <span>
#include <vector>

#include "formats/dtype.h"
#include "study/study.h"

namespace octet {

// Draws from N(0, 1), always the same.
std::vector<float> standard_normals(int64_t n);

// Signal to noise (snr_db), of 2^log2_sigma times these draws, which the format stores unscaled,
// rounded to nearest and saturating.
double snr_of_normal(Dtype dtype, double log2_sigma, std::span<const float> normals);

// Figures "significand_bits" (over the exponent; Luo et al. 2024, figure 1) and "snr" (over log2
// sigma) of all formats of elements.
Study study_formats(int64_t n_samples);

}  // namespace octet
