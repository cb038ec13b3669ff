// How finely scales are chosen: tensors of a file, and the inputs of a model's norms.
#pragma once

#include <array>

#include "formats/quantize.h"
#include "io/safetensors.h"
#include "nn/model.h"
#include "ptq/walk.h"
#include "study/study.h"

namespace octet {

// Signal to noise, dB: the mean over scales, and its standard error. Infinite, without an error,
// where a scale is exact.
struct SnrAndDraw {
  double mean = 0, error = 0;
};
// By four scales: that of the quantizer, and three by which the maximum becomes smaller data, of
// floats times 2^(-1/4), 2^(-1/2), 2^(-3/4), of integers times 1 - k/128. What each element is
// rounded to is drawn anew by each; two formats whose means are within their errors are alike.
using SnrByScale = std::array<double, 4>;
SnrByScale snr_by_scale(const Quantizer& quantizer, const MatrixShape& shape,
                        std::span<const float> x);
SnrAndDraw over_scales(const SnrByScale& snr);
SnrAndDraw snr_over_scales(const Quantizer& quantizer, const MatrixShape& shape,
                           std::span<const float> x);
// a less b, scale by scale: the same elements, so that what is hard for both does not enter.
SnrAndDraw difference_over_scales(const SnrByScale& a, const SnrByScale& b);

// Two groupings of the same tensors: the mean over the tensors of how much more signal to noise, in
// dB, `name` has than `baseline`, and its standard error over them; NaN of one tensor.
struct PairedSnr {
  std::string name, baseline;
  double mean = 0, error = 0;
  int64_t n = 0, n_larger = 0;  // tensors, and those where it is above 0
};
PairedSnr paired_snr(std::string name, std::string baseline, std::span<const SnrAndDraw> tensors);
// dB, of a matrix [rows, cols] as the quantizer stores it.
double snr_of(const Quantizer& quantizer, const MatrixShape& shape, std::span<const float> x);

// The groupings of study_activations.
std::vector<std::string> activation_groupings();

// The input of each norm of a model on these rows, in E4M3: one scale for the tensor, 1xG groups
// and BxB blocks of as many elements (COAT's figure 4a). The table has the paired differences
// (paired_snr) of each grouping to the baseline, and of 1xG groups to the blocks of as many
// elements; the sheet "differences" those of each norm, with the error over scales; the figure and
// its sheet "norm_inputs" each signal to noise. Throws Error{invalid_argument} for a baseline that
// is no grouping of rows of this width.
Study study_activations(const ModelSpec& spec, const std::vector<Batch>& rows,
                        ModelWalk::ReadParameter read, Backend& backend,
                        std::string_view baseline = "tensor");

// Each tensor of real numbers of a file: its range, its signal to noise in each format beside the
// draw of its scale, and which has the most, with those that the draw does not tell from it. Those
// of integers or codes, and those that are not finite or 0 alone, are left out. Its figure is
// "tensors".
Study study_tensors(const SafetensorsReader& file);

}  // namespace octet
