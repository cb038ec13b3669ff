// Transforms that a model's pictures go through before it sees them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/files.h"
#include "config/run_config.h"
#include "data/images/transforms.h"
#include "infer/model_source.h"
#include "infer/processor_files.h"

namespace octet {

// Transforms as a run's data.images say. Throws Error{invalid_argument} for a range that is none.
ImageTransforms transforms_of(const ImagesConfig& images);

// Image settings: of a run its own, of a model's folder what its file of an image processor says
// (processor_files.h), and where it does not say, what the image processor of transformers does
// that it names. Without such a file 0.5 and 0.5. Throws Error{bad_data}, "[images] PATH: ...",
// where the file has a key or a value that is not supported. Warns where do_resize is false:
// pictures of another size are resized all the same.
ImagesConfig evaluation_images(const Files& files, const ModelSource& source, const Log& log = {});
ImageTransforms evaluation_transforms(const Files& files, const ModelSource& source,
                                      const Log& log = {});

// Keys of the file that change no pixel, proved in docs/results/neutral_keys.csv.
std::span<const std::string_view> neutral_image_keys();

// preprocessor_config.json for a run's model: evaluation_transforms of a folder with it are the
// run's own in an evaluation.
std::string image_processor_text(const ImagesConfig& images, const ModelSpec& spec);

}  // namespace octet
