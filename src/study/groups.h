// How finely scales are chosen: tensors of a file, and the inputs of a model's norms.
#pragma once

#include "formats/quantize.h"
#include "io/safetensors.h"
#include "nn/model.h"
#include "ptq/walk.h"
#include "study/study.h"

namespace octet {

// Signal to noise, dB, of a matrix [rows, cols] as the quantizer stores it.
double snr_of(const Quantizer& quantizer, const MatrixShape& shape, std::span<const float> x);

// The input of each norm of a model on these rows, in E4M3: one scale for the tensor, 1xG groups
// and BxB blocks of as many elements (COAT's figure 4a). Its figure is "norm_inputs".
Study study_activations(const ModelSpec& spec, const std::vector<Batch>& rows,
                        ModelWalk::ReadParameter read, Backend& backend);

// Each tensor of real numbers of a file: its range, its signal to noise in each format, and which
// has the most. Its figure is "tensors".
Study study_tensors(const SafetensorsReader& file);

}  // namespace octet
