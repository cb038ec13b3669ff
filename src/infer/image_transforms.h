// What a model's pictures go through before it sees them.
#pragma once

#include <string>

#include "base/files.h"
#include "config/run_config.h"
#include "data/images/transforms.h"
#include "infer/model_source.h"

namespace octet {

// As a run's data.images say. Throws Error{invalid_argument} for a range that is none.
ImageTransforms transforms_of(const ImagesConfig& images);

// Of a run its own, of a model's folder what preprocessor_config.json says: image_mean, image_std,
// do_normalize, size (a number alone is of both sides, of processors such as CLIP's of the shorter
// one), resample. Without that file 0.5 and 0.5. Throws Error{bad_data}, "[images]
// PATH: ...", where the file asks for other pixels than those of 0 to 1 (do_rescale,
// rescale_factor). Warns of a filter ("resample") other than the bilinear and the bicubic one: the
// bilinear one resizes in its place.
ImagesConfig evaluation_images(const Files& files, const ModelSource& source, const Log& log = {});
ImageTransforms evaluation_transforms(const Files& files, const ModelSource& source,
                                      const Log& log = {});

inline constexpr const char* kImageProcessor = "preprocessor_config.json";
// That file for a run's model: evaluation_transforms of a folder with it are the run's own in an
// evaluation.
std::string image_processor_text(const ImagesConfig& images, const ModelSpec& spec);

}  // namespace octet
