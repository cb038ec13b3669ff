// The towers of CLIP and SigLIP, which are models of their own (nn/vision_models.cpp), and what
// models with pictures in their texts (ModelDef::sees_pictures) have in common: such a tower, and
// how what it gives stands among the embeddings of a text's tokens.
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
// Fills what zeros of its own fields stand for; the decoder's are filled before.
void fill_vision(ModelSpec& spec);
std::optional<ModelFault> fault_of_vision(const ModelSpec& full);
// True if models of the kind are such a tower and no more: they leave out patches that are not
// whole.
bool is_tower_alone(ModelKind kind);

// A tower of CLIP or SigLIP whose width, layers, heads, patches and norms the spec at hand says.
// image_size: pixels of a side, of which patches that are not whole are left out. prefix: what
// begins its parameters' names.
struct Tower {
  VisionTower kind = VisionTower::clip;
  MlpAct act = MlpAct::quick_gelu;
  int64_t image_size = 0;
  std::string prefix = {};
};
// Patches, a class token before those of a picture (CLIP), learned positions and pre-norm layers of
// full attention: what the last layer gives. Source: Radford et al. 2021; Zhai et al. 2023. Names:
// CLIPVisionModel and SiglipVisionModel of transformers. With ModelSpec::post_norm norms stand
// behind the sums of layers, and CLIP's in front of these is not there.
//   pictures [B, .., C, S, S]  ->  [B * rows, hidden]
ValueId tower_states(Blocks& blocks, ValueId pictures, const Tower& tower);

// side x side rows of a picture as squares of s x s, each of which is one row, rows of it first;
// zeros stand beyond the last: [B * side^2, w] -> [B * ceil(side / s)^2, s^2 w].
ValueId squares_of_rows(Blocks& blocks, ValueId rows, int64_t side, int64_t s);

// Names of a family's parts, and what makes of the tower's rows those of the decoder's width.
struct VisionParts {
  std::string tower, text;  // what begins their parameters' names; of text in the place of "model."
  ValueId (*projector)(Blocks& blocks, ValueId rows, const ModelSpec& spec) = nullptr;
};
// The whole model: logits of the decoder that reads, in the place of a picture's tokens, the
// projector's rows of it: row i of [token embeddings; features] where "merged_rows" says i.
Outputs text_with_pictures(Blocks& blocks, const VisionParts& parts);

}  // namespace octet
