// What models with pictures in their texts (ModelDef::sees_pictures) have in common: the tower that
// sees the pictures, and how what it gives stands among the embeddings of a text's tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/blocks.h"

namespace octet {

// The tower's layers up to the hidden state that is read (ModelSpec::vision_layer): from 1 to
// vision_layers where there is such a state.
int64_t tower_depth(const ModelSpec& spec);
// Rows of one picture in the tower, and those that the decoder reads.
int64_t tower_rows(const ModelSpec& spec);
int64_t picture_rows(const ModelSpec& spec);

// The model's inputs: of text, and unless a call is of one token over a cache, the pictures.
std::vector<InputSpec> picture_inputs(const ModelSpec& spec, const BatchSize& size);
InputSpec pictures_of(const ModelSpec& spec);  // the pictures
// "vision", the tower's layers that are computed, and "text", the decoder's.
std::vector<StackSpec> vision_and_text(const ModelSpec& spec);
// What zeros of its own fields stand for; the decoder's are filled before.
void fill_vision(ModelSpec& spec);
std::optional<ModelFault> fault_of_vision(const ModelSpec& full);

// What a family's parts are called, and what makes of the tower's rows those of the decoder's
// width.
struct VisionParts {
  std::string tower, text;  // what begins their parameters' names; of text in the place of "model."
  ValueId (*projector)(Blocks& blocks, ValueId rows, const ModelSpec& spec) = nullptr;
};
// The whole model: logits of the decoder that reads, in the place of a picture's tokens, the
// projector's rows of it: row i of [token embeddings; features] where "merged_rows" says i.
Outputs text_with_pictures(Blocks& blocks, const VisionParts& parts);

}  // namespace octet
