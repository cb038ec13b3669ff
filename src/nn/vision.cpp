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
  if (const int64_t s = spec.projector_downsample; s > 1) {
    const int64_t side = (spec.image_size / spec.patch_size + s - 1) / s;
    return side * side;
  }
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

bool is_tower_alone(ModelKind kind) {
  return kind == ModelKind::clip_vision_model || kind == ModelKind::siglip_vision_model;
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
ValueId whole_patches(Blocks& b, ValueId pictures, int64_t size) {
  Builder& builder = b.builder();
  const ModelSpec& spec = b.spec();
  const int64_t side = size / spec.patch_size * spec.patch_size;
  ValueId x = builder.reshape(pictures, {b.size().batch, spec.channels, size, size});
  if (side == size) return x;
  x = builder.slice(x, 2, 0, side);
  return builder.slice(x, 3, 0, side);
}

ValueId embeddings(Blocks& b, ValueId pictures, const Tower& tower) {
  const ModelSpec& spec = b.spec();
  const bool is_clip = tower.kind == VisionTower::clip;
  const int64_t hidden = spec.hidden, p = spec.patch_size, side = tower.image_size / p,
                rows = side * side + (is_clip ? 1 : 0);
  const LinearOptions options = {.bias = bias_if(!is_clip),
                                 .file_shape = {hidden, spec.channels, p, p}};
  b.enter(-1, tower.prefix + "embeddings.");
  const ValueId patches = b.patches(whole_patches(b, pictures, tower.image_size));
  ValueId x = b.linear(patches, "patch_embedding", hidden, options);
  if (is_clip) x = b.with_first_rows(b.table("class_embedding", 1, {hidden}), x);
  x = b.add_rows(x, b.table("position_embedding.weight", rows, {}));
  if (!is_clip || spec.post_norm) return x;
  b.enter(-1, tower.prefix);
  return b.layer_norm(x, "pre_layrnorm");  // as its files spell it
}

// With post_norm the norms stand behind the sums, as in Vaswani et al. 2017.
ValueId layer(Blocks& b, ValueId x, MlpAct act) {
  const int64_t hidden = b.spec().hidden;
  const bool is_post = b.spec().post_norm;
  const auto norm = [&](ValueId value, std::string_view path, bool is_here) {
    return is_here ? b.layer_norm(value, path) : value;
  };
  const ValueId read = norm(x, "layer_norm1", !is_post);
  const ValueId q = b.linear(read, "self_attn.q_proj", hidden, kBias);
  const ValueId k = b.linear(read, "self_attn.k_proj", hidden, kBias);
  const ValueId v = b.linear(read, "self_attn.v_proj", hidden, kBias);
  const ValueId o = b.attention(q, k, v, {.mask = AttentionMask::full});
  x = b.add(x, b.linear(o, "self_attn.out_proj", hidden, kResidual));
  x = norm(x, "layer_norm1", is_post);
  const ValueId wide = b.linear(norm(x, "layer_norm2", !is_post), "mlp.fc1", b.spec().ffn, kBias);
  const ValueId y = b.activation(wide, "mlp.activation_fn", act);
  x = b.add(x, b.linear(y, "mlp.fc2", hidden, kResidual));
  return norm(x, "layer_norm2", is_post);
}

// Rows of each picture that the decoder reads.
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
  spec.post_norm = whole.post_norm;
  spec.patch_size = whole.patch_size;
  spec.channels = whole.channels;
  spec.image_size = whole.image_size / whole.patch_size * whole.patch_size;
  return spec;
}

// The tower's hidden state of ModelSpec::vision_layer without the rows that vision_select leaves
// out, of idefics3 behind the last norm; names behind `prefix`.
//   pictures [B, images, C, S, S]  ->  [B * images * rows, vision_hidden]
ValueId vision_tower(Blocks& b, const ModelSpec& spec, const std::string& prefix) {
  const ValueId pictures = b.input("pictures");
  Blocks::Part part{.stack = "vision",
                    .prefix = prefix,
                    .spec = tower_spec(spec),
                    .batch = b.size().batch * spec.images};
  return b.in_part(std::move(part), [&] {
    const ValueId x = tower_states(
        b, pictures, {.kind = spec.tower, .act = spec.vision_act, .image_size = spec.image_size});
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

ValueId tower_states(Blocks& b, ValueId pictures, const Tower& tower) {
  ValueId x = embeddings(b, pictures, tower);
  for (int i = 0; i < b.spec().layers; ++i) {
    b.enter(i, fmt::format("{}encoder.layers.{}.", tower.prefix, i));
    x = layer(b, x, tower.act);
  }
  b.enter(-1, tower.prefix);
  return x;
}

ValueId squares_of_rows(Blocks& b, ValueId rows, int64_t side, int64_t s) {
  Builder& builder = b.builder();
  const int64_t w = b.shape(rows)[1], n = b.shape(rows)[0] / (side * side), k = (side + s - 1) / s,
                missing = k * s - side;
  ValueId x = builder.reshape(rows, {n, side, side, w});
  if (missing > 0) {
    x = builder.concatenate({x, builder.fill({n, missing, side, w}, 0)}, 1);
    x = builder.concatenate({x, builder.fill({n, k * s, missing, w}, 0)}, 2);
  }
  const ValueId apart = builder.reshape(x, {n, k, s, k, s, w});
  const ValueId together = builder.transpose(apart, {0, 1, 3, 2, 4, 5});
  return builder.reshape(together, {n * k * k, s * s * w});
}

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
