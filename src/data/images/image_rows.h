// Pictures and their labels as rows of a model that reads them.
#pragma once

#include <memory>
#include <vector>

#include "base/log.h"
#include "data/images/image_source.h"
#include "data/images/transforms.h"
#include "data/row_source.h"

namespace octet {

// Rows for these inputs, which the data has to bring: one is a real array a row, the pixels
// [C, S, S], and at most one an index a row, the label. `transforms` but its channels and size,
// which the pixels tell. A picture that turns out to be damaged when it is decoded is replaced by
// the next whole one, with its label, and one warning. Throws Error{bad_data}, "[images] ...",
// where the inputs are others, the pixels are of no square picture of 1 or 3 channels, or a label
// is not below its bound, Error{invalid_argument} where the transforms do not fit.
std::shared_ptr<const RowSource> image_rows(std::shared_ptr<const ImageSource> images,
                                            const std::vector<InputSpec>& inputs,
                                            const ImageTransforms& transforms, Log log = {});

}  // namespace octet
