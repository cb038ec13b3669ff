// What models that read pictures have in common: their input, and their heads.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "nn/model.h"

namespace octet {

// "pixels" [B, C, H, W].
inline std::vector<InputSpec> image_inputs(const ModelSpec& spec, const BatchSize&) {
  return {{.name = "pixels",
           .per = Per::row,
           .inner = {spec.channels, spec.image_size, spec.image_size},
           .type = HostType::real}};
}

// By the classes of the library that have them.
constexpr std::array<HeadDef, 3> image_heads(std::string_view classifier, std::string_view model) {
  return {{{ModelHead::classes, classifier, "classes", Per::row, "classes"},
           {ModelHead::features, model, "features", Per::row, ""},
           {ModelHead::multi_label, classifier, "multi_label", Per::row, "multi_label"}}};
}

}  // namespace octet
