// The vision models of CLIP and SigLIP alone (nn/vision.h): features of a picture's patches and one
// row of the whole picture, or a classifier of the mean of the patches. Pixels beyond the last
// whole patch of a side are left out. Source: Radford et al. 2021; Zhai et al. 2023. Names:
// CLIPVisionModel, CLIPForImageClassification, SiglipVisionModel, SiglipForImageClassification.
#include "nn/image_model.h"
#include "nn/list.h"
#include "nn/vision.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "hidden", .key = "hidden_size", .absent = 768},
    {.field = "ffn", .key = "intermediate_size", .absent = 3072},
    {.field = "layers", .key = "num_hidden_layers", .absent = 12},
    {.field = "heads", .key = "num_attention_heads", .absent = 12},
    {.field = "channels", .key = "num_channels", .absent = 3},
    {.field = "image_size", .key = "image_size", .absent = 224},
    {.field = "patch_size", .key = "patch_size", .absent = 32},
    {.field = "norm_eps", .key = "layer_norm_eps", .absent = 1e-5},
    {.field = "mlp_act", .key = "hidden_act", .absent = static_cast<int>(MlpAct::quick_gelu)},
};
constexpr HfKey kSiglipKeys[] = {
    {.field = "patch_size", .key = "patch_size", .absent = 16},
    {.field = "norm_eps", .key = "layer_norm_eps", .absent = 1e-6},
    {.field = "mlp_act", .key = "hidden_act", .absent = static_cast<int>(MlpAct::gelu_tanh)},
};
constexpr HfNeutral kSiglipNeutrals[] = {{.key = "vision_use_head", .value = "true"}};

constexpr auto kClipHeads = image_heads("CLIPForImageClassification", "CLIPVisionModel");
constexpr auto kSiglipHeads = image_heads("SiglipForImageClassification", "SiglipVisionModel");
constexpr HeadAlias kClipAliases[] = {{"CLIPVisionModelWithProjection", ModelHead::features}};

constexpr std::string_view kPrefix = "vision_model.";
constexpr std::string_view kHeadPrefixes[] = {"classifier."};

bool is_clip(const ModelSpec& spec) {
  return spec.kind == ModelKind::clip_vision_model;
}
bool has_features(const ModelSpec& spec) {
  return head_of(spec).head == ModelHead::features;
}

std::vector<OutputSpec> outputs(const ModelSpec& spec) {
  if (!has_features(spec)) return head_output(spec);
  return {{.name = "features"}, {.name = "pooled", .per = Per::row}};
}

// An index, the projection to a text's width, and what makes the one row of a picture, which no
// classifier reads.
bool skips(const ModelSpec& spec, std::string_view stored) {
  if (stored.starts_with(kPrefix)) stored.remove_prefix(kPrefix.size());
  if (stored == "embeddings.position_ids" || stored.starts_with("visual_projection.")) return true;
  return !has_features(spec) && stored.starts_with(is_clip(spec) ? "post_layernorm." : "head.");
}

// The mean of a picture's rows from `first` on: [B, hidden].
ValueId mean_of_rows(Blocks& b, ValueId x, int64_t first) {
  b.module("pooling");
  Builder& builder = b.builder();
  const int64_t n = b.size().batch, rows = b.shape(x)[0] / n, width = b.shape(x)[1];
  ValueId apart = builder.reshape(b.in_f32(x), {n, rows, width});
  if (first > 0) apart = builder.slice(apart, 1, first, rows - first);
  return builder.scaled(builder.reduce_sum(apart, {1}), 1 / static_cast<double>(rows - first));
}

// A learned query's attention to all rows of a picture, and a feed-forward block behind it, as
// SiglipMultiheadAttentionPoolingHead has it: [B, hidden].
ValueId attended(Blocks& b, ValueId x) {
  constexpr LinearOptions kBias = {.bias = WithBias::yes};
  Builder& builder = b.builder();
  const int64_t n = b.size().batch, hidden = b.spec().hidden;
  b.enter(-1, std::string(kPrefix) + "head.");
  const ValueId probe = b.table("probe", 1, {1, 1, hidden});
  const ValueId w = b.table("attention.in_proj_weight", 3 * hidden, {});
  const ValueId bias = b.constant("attention", "in_proj_bias", 3 * hidden, Init::zeros);
  const auto projected = [&](ValueId rows) {
    const ValueId y = builder.gemm(rows, w, {.trans_b = true, .role = GemmRole::forward});
    return builder.binary(OpCode::bias_add, y, bias);
  };
  b.module("attention.in_proj");
  const ValueId one = b.columns(projected(probe), 0, hidden), all = projected(x);
  const ValueId q = builder.reshape(builder.broadcast(one, {n, 1, hidden}, {1, 2}), {n, hidden});
  const ValueId o = b.attention(q, b.columns(all, hidden, hidden),
                                b.columns(all, 2 * hidden, hidden), {.mask = AttentionMask::full});
  const ValueId y = b.linear(o, "attention.out_proj", hidden, kBias);
  const ValueId wide = b.linear(b.layer_norm(y, "layernorm"), "mlp.fc1", b.spec().ffn, kBias);
  return b.add(y, b.linear(b.activation(wide, "mlp.act"), "mlp.fc2", hidden, kBias));
}

Outputs build(Blocks& b) {
  const ModelSpec& spec = b.spec();
  ValueId x = tower_states(b, b.input("pixels"),
                           {.kind = is_clip(spec) ? VisionTower::clip : VisionTower::siglip,
                            .act = spec.mlp_act,
                            .image_size = spec.image_size,
                            .prefix = std::string(kPrefix)});
  if (!is_clip(spec)) x = b.layer_norm(x, "post_layernorm");
  if (has_features(spec)) {
    if (!is_clip(spec)) return {x, attended(b, x)};
    return {x, b.layer_norm(b.row_of_each(x, 0), "post_layernorm")};
  }
  const ValueId mean = mean_of_rows(b, x, is_clip(spec) ? 1 : 0);
  b.enter(-1, "");
  return {b.linear(mean, "classifier", spec.classes, {.bias = WithBias::yes})};
}

constexpr ModelDef vision_model(ModelDef def) {
  def = image_model(def);
  def.outputs = outputs;
  return def;
}

}  // namespace

constinit const ModelDef kClipVision = vision_model({.kind = ModelKind::clip_vision_model,
                                                     .name = "clip_vision_model",
                                                     .architecture = "CLIPVisionModel",
                                                     .prefix = kPrefix,
                                                     .head = "classifier.weight",
                                                     .hf_keys = kKeys,
                                                     .own_hf_keys = {},
                                                     .hf_neutrals = {},
                                                     .build = build,
                                                     .class_tokens = 1,
                                                     .heads = kClipHeads,
                                                     .head_aliases = kClipAliases,
                                                     .head_prefixes = kHeadPrefixes,
                                                     .skips = skips});

constinit const ModelDef kSiglipVision = vision_model({.kind = ModelKind::siglip_vision_model,
                                                       .name = "siglip_vision_model",
                                                       .architecture = "SiglipVisionModel",
                                                       .prefix = kPrefix,
                                                       .head = "classifier.weight",
                                                       .usual_norm_eps = 1e-6,
                                                       .hf_keys = kKeys,
                                                       .own_hf_keys = kSiglipKeys,
                                                       .hf_neutrals = kSiglipNeutrals,
                                                       .build = build,
                                                       .heads = kSiglipHeads,
                                                       .head_prefixes = kHeadPrefixes,
                                                       .skips = skips});

}  // namespace octet
