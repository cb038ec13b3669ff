#include "nn/vision.h"

#include "base/error.h"
#include "nn/fields.h"
#include "nn/shape.h"

namespace octet {

int64_t tower_depth(const ModelSpec& spec) {
  return spec.vision_layer >= 0 ? spec.vision_layer : spec.vision_layers + 1 + spec.vision_layer;
}

int64_t tower_rows(const ModelSpec& spec) {
  const int64_t side = spec.image_size / spec.patch_size;
  return side * side + (spec.tower == VisionTower::clip ? 1 : 0);
}

int64_t picture_rows(const ModelSpec& spec) {
  if (spec.kind == ModelKind::idefics3)
    return tower_rows(spec) / (spec.pixel_shuffle * spec.pixel_shuffle);
  return tower_rows(spec) - (spec.vision_select == VisionSelect::patches ? 1 : 0);
}

std::vector<InputSpec> picture_inputs(const ModelSpec& spec, const BatchSize& size) {
  std::vector<InputSpec> inputs = text_inputs(spec, size);
  if (size.cache > 0 && size.seq == 1) return inputs;
  inputs.push_back(merged_rows_input());
  inputs.push_back(pictures_of(spec));
  return inputs;
}

InputSpec pictures_of(const ModelSpec& spec) {
  return pictures_input({spec.images, spec.channels, spec.image_size, spec.image_size});
}

std::vector<StackSpec> vision_and_text(const ModelSpec& spec) {
  return {{.name = "vision", .layers = tower_depth(spec)}, {.name = "text", .layers = spec.layers}};
}

void fill_vision(ModelSpec& spec) {
  if (spec.vision_ffn == 0) spec.vision_ffn = 4 * spec.vision_hidden;
  if (spec.projector_act == MlpAct::usual) spec.projector_act = MlpAct::gelu_erf;
  if (spec.vision_act != MlpAct::usual) return;
  spec.vision_act = spec.tower == VisionTower::clip ? MlpAct::quick_gelu : MlpAct::gelu_tanh;
}

std::optional<ModelFault> fault_of_vision(const ModelSpec& full) {
  if (full.vision_hidden % full.vision_heads != 0)
    return fault_against("vision_heads", "vision_hidden", "a divisor of {}", full);
  if (full.patch_size > full.image_size)
    return fault_against("patch_size", "image_size", "at most {}", full);
  if (tower_depth(full) < 1 || tower_depth(full) > full.vision_layers)
    return fault_against("vision_layer", "vision_layers", "a hidden state behind one of {}", full);
  if (picture_rows(full) < 1)
    return fault_against("vision_select", "patch_size", "a row a picture, of {}", full);
  if (full.image_token >= full.vocab)
    return fault_against("image_token", "vocab", "less than {}", full);
  return std::nullopt;
}

namespace {

constexpr LinearOptions kBias = {.bias = WithBias::yes};
constexpr LinearOptions kResidual = {.use = MatrixUse::residual, .bias = WithBias::yes};

// Patches beyond the last whole one of a side are left out, as a convolution without padding does.
ValueId whole_patches(Blocks& b, ValueId pictures, const ModelSpec& spec, int64_t side) {
  Builder& builder = b.builder();
  const int64_t n = b.size().batch, s = spec.image_size;
  ValueId x = builder.reshape(pictures, {n, spec.channels, s, s});
  if (side == s) return x;
  x = builder.slice(x, 2, 0, side);
  return builder.slice(x, 3, 0, side);
}

ValueId embeddings(Blocks& b, ValueId pictures, const ModelSpec& whole) {
  const ModelSpec& spec = b.spec();
  const bool is_clip = whole.tower == VisionTower::clip;
  const int64_t hidden = spec.hidden, p = spec.patch_size;
  const LinearOptions options = {.bias = bias_if(!is_clip),
                                 .file_shape = {hidden, spec.channels, p, p}};
  b.enter(-1, "embeddings.");
  const ValueId patches = b.patches(whole_patches(b, pictures, whole, spec.image_size));
  ValueId x = b.linear(patches, "patch_embedding", hidden, options);
  if (is_clip) x = b.with_first_rows(b.table("class_embedding", 1, {hidden}), x);
  x = b.add_rows(x, b.table("position_embedding.weight", tower_rows(whole), {}));
  if (!is_clip) return x;
  b.enter(-1, "");
  return b.layer_norm(x, "pre_layrnorm");  // as its files spell it
}

ValueId layer(Blocks& b, ValueId x, MlpAct act) {
  const int64_t hidden = b.spec().hidden;
  const ValueId read = b.layer_norm(x, "layer_norm1");
  const ValueId q = b.linear(read, "self_attn.q_proj", hidden, kBias);
  const ValueId k = b.linear(read, "self_attn.k_proj", hidden, kBias);
  const ValueId v = b.linear(read, "self_attn.v_proj", hidden, kBias);
  const ValueId o = b.attention(q, k, v, {.mask = AttentionMask::full});
  x = b.add(x, b.linear(o, "self_attn.out_proj", hidden, kResidual));
  const ValueId wide = b.linear(b.layer_norm(x, "layer_norm2"), "mlp.fc1", b.spec().ffn, kBias);
  const ValueId y = b.activation(wide, "mlp.activation_fn", act);
  return b.add(x, b.linear(y, "mlp.fc2", hidden, kResidual));
}

// Of each picture the rows that the decoder reads.
ValueId selected(Blocks& b, ValueId x, const ModelSpec& whole) {
  if (whole.vision_select == VisionSelect::all) return x;
  Builder& builder = b.builder();
  const int64_t n = b.size().batch, rows = tower_rows(whole), hidden = b.spec().hidden;
  const ValueId behind = builder.slice(builder.reshape(x, {n, rows, hidden}), 1, 1, rows - 1);
  return builder.reshape(behind, {n * (rows - 1), hidden});
}

// The tower's shape as that of a model of its own.
ModelSpec tower_spec(const ModelSpec& whole) {
  ModelSpec spec{.kind = ModelKind::vit,
                 .hidden = whole.vision_hidden,
                 .layers = tower_depth(whole),
                 .heads = whole.vision_heads,
                 .kv_heads = whole.vision_heads,
                 .head_dim = whole.vision_hidden / whole.vision_heads,
                 .ffn = whole.vision_ffn,
                 .norm_eps = whole.vision_eps};
  spec.patch_size = whole.patch_size;
  spec.channels = whole.channels;
  spec.image_size = whole.image_size / whole.patch_size * whole.patch_size;
  return spec;
}

// The tower of CLIP or SigLIP: patches, a class token (CLIP), learned positions, pre-norm layers of
// full attention, and the hidden state of ModelSpec::vision_layer without the rows that
// vision_select leaves out, of idefics3 behind the last norm. Source: Radford et al. 2021; Zhai et
// al. 2023. Names: CLIPVisionModel and SiglipVisionModel of transformers, behind `prefix`.
//   pictures [B, images, C, S, S]  ->  [B * images * rows, vision_hidden]
ValueId vision_tower(Blocks& b, const ModelSpec& spec, const std::string& prefix) {
  const ValueId pictures = b.input("pictures");
  Blocks::Part part{.stack = "vision",
                    .prefix = prefix,
                    .spec = tower_spec(spec),
                    .batch = b.size().batch * spec.images};
  return b.in_part(std::move(part), [&] {
    ValueId x = embeddings(b, pictures, spec);
    for (int i = 0; i < b.spec().layers; ++i) {
      b.enter(i, fmt::format("encoder.layers.{}.", i));
      x = layer(b, x, spec.vision_act);
    }
    b.enter(-1, "");
    if (spec.kind == ModelKind::idefics3) return b.layer_norm(x, "post_layernorm");
    return selected(b, x, spec);
  });
}

ValueId merged_rows(Blocks& b, ValueId embeddings, ValueId features) {
  b.module("merged_rows");
  return b.builder().binary(OpCode::embedding, b.stacked(embeddings, features),
                            b.input("merged_rows"));
}

ValueId with_pictures(Blocks& b, ValueId embeddings, const ModelSpec& spec,
                      const VisionParts& parts) {
  if (b.input_or_none("pictures") == kNoValue) return embeddings;
  const ValueId seen = vision_tower(b, spec, parts.tower);
  Blocks::Part part{.stack = "projector", .spec = spec, .batch = b.size().batch};
  const ValueId features =
      b.in_part(std::move(part), [&] { return parts.projector(b, seen, spec); });
  return merged_rows(b, embeddings, features);
}

}  // namespace

Outputs text_with_pictures(Blocks& b, const VisionParts& parts) {
  const ModelSpec spec = b.spec();
  const auto merge = [&](ValueId x) { return with_pictures(b, x, spec, parts); };
  Blocks::Part text{.stack = "text",
                    .prefix = parts.text,
                    .own = "model.",
                    .spec = text_spec(spec),
                    .batch = b.size().batch,
                    .merge = merge};
  return {b.in_part(std::move(text), [&] { return model_def(spec.text).logits(b); })};
}

}  // namespace octet
