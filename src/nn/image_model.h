// Parts that models that read pictures have in common: their input, and their heads.
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

// The definition of a model that reads pictures, from what is its own.
constexpr ModelDef image_model(ModelDef def) {
  def.positions = Positions::learned;
  def.mlp = MlpKind::gelu;
  def.grouped_heads = false;
  def.inputs = image_inputs;
  def.outputs = head_output;
  def.loss = head_loss;
  def.writes_text = def.reads_text = false;
  def.reads_images = true;
  return def;
}
// Definition of one without attention, whose weights lie otherwise than in files.
constexpr ModelDef convolutional_model(ModelDef def) {
  def.plain_linears = false;
  def.is_convolutional = true;
  return image_model(def);
}

}  // namespace octet
