// LLaVA: a vision tower (nn/vision.h), a projector of two linears, and a decoder of another kind
// that reads what they give of a picture in the places of its tokens. Source: Liu et al. 2023.
// Names: those of the files of LlavaForConditionalGeneration.
#include "nn/list.h"
#include "nn/shape.h"
#include "nn/vision.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "text", .key = "text_config/model_type", .absent = 0},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 0},
    {.field = "tower",
     .key = "vision_config/model_type",
     .absent = static_cast<int>(VisionTower::clip)},
    {.field = "vision_hidden", .key = "vision_config/hidden_size", .absent = 768},
    {.field = "vision_ffn", .key = "vision_config/intermediate_size", .absent = 3072},
    {.field = "vision_layers", .key = "vision_config/num_hidden_layers", .absent = 12},
    {.field = "vision_heads", .key = "vision_config/num_attention_heads", .absent = 12},
    {.field = "channels", .key = "vision_config/num_channels", .absent = 3},
    {.field = "image_size", .key = "vision_config/image_size", .absent = 224},
    {.field = "patch_size", .key = "vision_config/patch_size", .absent = 32},
    {.field = "vision_eps", .key = "vision_config/layer_norm_eps", .absent = 1e-5},
    {.field = "vision_act",
     .key = "vision_config/hidden_act",
     .absent = static_cast<int>(MlpAct::quick_gelu)},
    {.field = "vision_layer", .key = "vision_feature_layer", .absent = -2},
    {.field = "vision_select",
     .key = "vision_feature_select_strategy",
     .absent = static_cast<int>(VisionSelect::patches)},
    {.field = "projector_act",
     .key = "projector_hidden_act",
     .absent = static_cast<int>(MlpAct::gelu_erf)},
    {.field = "projector_bias", .key = "multimodal_projector_bias", .absent = 1},
    // Keys of towers and projectors that transformers does not have.
    {.field = "post_norm", .key = "vision_config/post_norm", .absent = 0},
    {.field = "projector_downsample", .key = "projector_downsample", .absent = 1},
    {.field = "image_token",
     .key = "image_token_index",
     .newer = "image_token_id",
     .absent = 32000},
};

constexpr std::string_view kTower = "vision_tower.vision_model.", kText = "language_model.";

// Tensors behind the hidden state that is read, and indices.
bool skips(const ModelSpec& spec, std::string_view stored) {
  if (!stored.starts_with(kTower)) return false;
  const std::string_view rest = stored.substr(kTower.size());
  constexpr std::string_view kLayers = "encoder.layers.";
  if (!rest.starts_with(kLayers)) {
    return rest.starts_with("post_layernorm.") || rest.starts_with("head.") ||
           rest == "embeddings.position_ids";  // an index, which no export has
  }
  const std::string_view number =
      rest.substr(kLayers.size(), rest.find('.', kLayers.size()) - kLayers.size());
  for (int64_t i = tower_depth(spec); i < spec.vision_layers; ++i) {
    if (number == fmt::to_string(i)) return true;
  }
  return false;
}

// Files of transformers 5 leave a module of the tower out, and models in memory nest theirs.
std::string renamed(const ModelSpec&, std::string_view stored) {
  constexpr std::string_view kModel = "model.", kModule = "vision_tower.",
                             kDecoder = "model.language_model.";
  if (stored.starts_with("lm_head.")) return std::string(kText).append(stored);
  if (stored.starts_with(kDecoder))
    return std::string(kText).append(kModel).append(stored.substr(kDecoder.size()));
  if (stored.starts_with(kModel)) stored.remove_prefix(kModel.size());
  if (stored.starts_with(kModule) && !stored.starts_with(kTower))
    return std::string(kTower).append(stored.substr(kModule.size()));
  return std::string(stored);
}

std::string module_name(std::string_view module) {
  constexpr std::string_view kDecoder = "language_model.model.";
  if (module.starts_with(kDecoder))
    return "model.language_model." + std::string(module.substr(kDecoder.size()));
  if (module.starts_with(kTower))
    return "model.vision_tower." + std::string(module.substr(kTower.size()));
  return module.starts_with(kText) ? std::string(module.substr(kText.size()))
                                   : "model." + std::string(module);
}

// Squares are made of patches alone.
std::optional<ModelFault> fault(const ModelSpec& full) {
  if (auto fault = fault_of_vision(full)) return fault;
  const bool has_patches =
      (full.tower == VisionTower::clip) == (full.vision_select == VisionSelect::patches);
  if (full.projector_downsample > 1 && !has_patches)
    return fault_against("projector_downsample", "vision_select", "1 with {} of this tower", full);
  return std::nullopt;
}

// [n, vision_hidden] -> [n, hidden]; with projector_downsample s squares of s x s patches become
// one row, behind a LayerNorm, before the linears: [n / s^2, hidden]. Source: Lin et al. 2024,
// VILA.
ValueId projector(Blocks& b, ValueId x, const ModelSpec& spec) {
  const LinearOptions options = {.bias = bias_if(spec.projector_bias)};
  b.enter(-1, "multi_modal_projector.");
  if (const int64_t s = spec.projector_downsample; s > 1) {
    b.module("downsample");
    x = b.layer_norm(squares_of_rows(b, x, spec.image_size / spec.patch_size, s), "norm");
  }
  const ValueId wide = b.linear(x, "linear_1", spec.hidden, options);
  return b.linear(b.activation(wide, "act", spec.projector_act), "linear_2", spec.hidden, options);
}

Outputs build(Blocks& b) {
  return text_with_pictures(
      b, {.tower = std::string(kTower), .text = "language_model.model.", .projector = projector});
}

}  // namespace

constinit const ModelDef kLlava = {.kind = ModelKind::llava,
                                   .name = "llava",
                                   .architecture = "LlavaForConditionalGeneration",
                                   .prefix = "",
                                   .head = "language_model.lm_head.weight",
                                   .hf_keys = kKeys,
                                   .own_hf_keys = {},
                                   .hf_neutrals = {},
                                   .build = build,
                                   .inputs = picture_inputs,
                                   .stacks = vision_and_text,
                                   .writes_text = false,
                                   .sees_pictures = true,
                                   .skips = skips,
                                   .renamed = renamed,
                                   .module_name = module_name,
                                   .fill = fill_vision,
                                   .fault = fault};

}  // namespace octet
