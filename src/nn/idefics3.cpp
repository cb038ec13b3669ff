// Idefics3 and SmolVLM: SigLIP's tower with its last norm (nn/vision.h), squares of its patches
// side by side as one row, a linear, and a decoder. Pictures are squares of the tower's size.
// Source: Laurencon et al. 2024; Marafioti et al. 2025. Names: Idefics3ForConditionalGeneration.
#include <algorithm>

#include "nn/list.h"
#include "nn/shape.h"
#include "nn/vision.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "text", .key = "text_config/model_type", .absent = 0},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 0},
    {.field = "vision_hidden", .key = "vision_config/hidden_size", .absent = 1152},
    {.field = "vision_ffn", .key = "vision_config/intermediate_size", .absent = 3072},
    {.field = "vision_layers", .key = "vision_config/num_hidden_layers", .absent = 12},
    {.field = "vision_heads", .key = "vision_config/num_attention_heads", .absent = 16},
    {.field = "channels", .key = "vision_config/num_channels", .absent = 3},
    {.field = "image_size", .key = "vision_config/image_size", .absent = 224},
    {.field = "patch_size", .key = "vision_config/patch_size", .absent = 32},
    {.field = "vision_eps", .key = "vision_config/layer_norm_eps", .absent = 1e-6},
    {.field = "vision_act",
     .key = "vision_config/hidden_act",
     .absent = static_cast<int>(MlpAct::gelu_tanh)},
    {.field = "pixel_shuffle", .key = "scale_factor", .absent = 2},
    {.field = "image_token", .key = "image_token_id", .absent = 128257},
};
constexpr HfNeutral kNeutrals[] = {
    {.key = "vision_config/model_type", .value = "\"idefics3_vision\"", .also = "\"idefics3\""},
};

// The tower is SigLIP's, and whole.
void fill(ModelSpec& spec) {
  spec.tower = VisionTower::siglip;
  spec.vision_layer = -1;
  spec.vision_select = VisionSelect::all;
  fill_vision(spec);
}

// transformers finds a patch's position by the part of the picture that it begins at, in single
// precision: of some numbers of patches that is a neighbour's.
bool has_own_positions(int64_t side) {
  const double step = 1.0 / static_cast<double>(side);
  for (int64_t i = 0; i < side; ++i) {
    const float at = std::min(static_cast<float>(i) * (1.0F / static_cast<float>(side)),
                              static_cast<float>(1.0 - 1e-6));
    int64_t place = 0;
    while (place + 1 < side && static_cast<float>(step + static_cast<double>(place) * step) <= at)
      ++place;
    if (place != i) return false;
  }
  return true;
}

std::optional<ModelFault> fault(const ModelSpec& full) {
  if (auto fault = fault_of_vision(full)) return fault;
  const int64_t side = full.image_size / full.patch_size;
  if (side % full.pixel_shuffle != 0)
    return fault_against("pixel_shuffle", "image_size", "a divisor of its patches a side of {}",
                         full);
  if (!has_own_positions(side))
    return fault_against("patch_size", "image_size",
                         "as many patches a side as have positions of their own, of {}", full);
  return std::nullopt;
}

// [n side^2, w] -> [n (side / s)^2, s^2 w], and by a linear [.., hidden].
ValueId connector(Blocks& b, ValueId x, const ModelSpec& spec) {
  b.enter(-1, "model.connector.");
  b.module("pixel_shuffle");
  const ValueId squares =
      squares_of_rows(b, x, spec.image_size / spec.patch_size, spec.pixel_shuffle);
  return b.linear(squares, "modality_projection.proj", spec.hidden);
}

Outputs build(Blocks& b) {
  return text_with_pictures(
      b, {.tower = "model.vision_model.", .text = "model.text_model.", .projector = connector});
}

}  // namespace

constinit const ModelDef kIdefics3 = {.kind = ModelKind::idefics3,
                                      .name = "idefics3",
                                      .architecture = "Idefics3ForConditionalGeneration",
                                      .prefix = "model.",
                                      .hf_keys = kKeys,
                                      .own_hf_keys = {},
                                      .hf_neutrals = kNeutrals,
                                      .build = build,
                                      .inputs = picture_inputs,
                                      .stacks = vision_and_text,
                                      .writes_text = false,
                                      .sees_pictures = true,
                                      .fill = fill,
                                      .fault = fault};

}  // namespace octet
