// How finely scales are chosen: tensors of a file, and the inputs of a model's norms.
#pragma once

#include "formats/quantize.h"
#include "io/safetensors.h"
#include "nn/model.h"
#include "ptq/walk.h"
#include "study/study.h"

namespace octet {

// Signal to noise, dB: the mean over scales, and its standard error.
struct SnrAndDraw {
  double mean = 0, error = 0;
};
// Over four scales: that of the quantizer, and three by which the maximum becomes smaller data, of
// floats times 2^(-1/4), 2^(-1/2), 2^(-3/4), of integers times 1 - k/128. What each element is
// rounded to is drawn anew by each; two formats whose means are within their errors are alike.
SnrAndDraw snr_over_scales(const Quantizer& quantizer, const MatrixShape& shape,
                           std::span<const float> x);
// dB, of a matrix [rows, cols] as the quantizer stores it.
double snr_of(const Quantizer& quantizer, const MatrixShape& shape, std::span<const float> x);

// The input of each norm of a model on these rows, in E4M3: one scale for the tensor, 1xG groups
// and BxB blocks of as many elements (COAT's figure 4a). Its figure is "norm_inputs".
Study study_activations(const ModelSpec& spec, const std::vector<Batch>& rows,
                        ModelWalk::ReadParameter read, Backend& backend);

// Each tensor of real numbers of a file: its range, its signal to noise in each format beside the
// draw of its scale, and which has the most, with those that the draw does not tell from it. Those
// of integers or codes, and those that are not finite or 0 alone, are left out. Its figure is
// "tensors".
Study study_tensors(const SafetensorsReader& file);

}  // namespace octet
