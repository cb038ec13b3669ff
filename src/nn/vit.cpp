// Vision transformers: patches of an image, a token that stands for its class, pre-norm layers of
// full attention. DeiT has a second token, of distillation, which its classifier leaves out. Fields
// beside transformers' say where others put their norms, and what else they have.
// Source: Dosovitskiy et al. 2021; Touvron et al. 2021. Names: ViTForImageClassification,
// DeiTForImageClassification.
#include <algorithm>

#include "nn/blocks.h"
#include "nn/image_model.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "hidden", .key = "hidden_size", .absent = 768},
    {.field = "ffn", .key = "intermediate_size", .absent = 3072},
    {.field = "layers", .key = "num_hidden_layers", .absent = 12},
    {.field = "heads", .key = "num_attention_heads", .absent = 12},
    {.field = "image_size", .key = "image_size", .absent = 224},
    {.field = "patch_size", .key = "patch_size", .absent = 16},
    {.field = "channels", .key = "num_channels", .absent = 3},
    {.field = "norm_eps", .key = "layer_norm_eps", .absent = 1e-12},
    {.field = "mlp_relu", .key = "mlp_relu", .absent = 0},  // before gelu, whose relu it is
    {.field = "gelu", .key = "hidden_act", .absent = static_cast<int>(GeluKind::erf)},
    {.field = "qkv_bias", .key = "qkv_bias", .absent = 1},
    // Keys of vision transformers that transformers does not have.
    {.field = "post_norm", .key = "post_norm", .absent = 0},
    {.field = "fused_qkv", .key = "fused_qkv", .absent = 0},
    {.field = "final_norm", .key = "final_norm", .absent = 1},
    {.field = "classifier_hidden", .key = "classifier_hidden_size", .absent = 0},
    {.field = "attention_scale", .key = "attention_scale", .absent = 0},
};

constexpr auto kVitHeads = image_heads("ViTForImageClassification", "ViTModel");
constexpr auto kDeitHeads = image_heads("DeiTForImageClassification", "DeiTModel");

constexpr HeadAlias kVitAliases[] = {{"ViTForMaskedImageModeling", ModelHead::features}};
constexpr HeadAlias kDeitAliases[] = {
    {"DeiTForMaskedImageModeling", ModelHead::features},
    {"DeiTForImageClassificationWithTeacher", ModelHead::features},
};

constexpr std::string_view kHeadPrefixes[] = {"classifier."};
// Prefixes of heads that are none here: the two classifiers with a teacher, and hidden patches.
constexpr std::string_view kOtherHeads[] = {"cls_classifier.", "distillation_classifier.",
                                            "decoder."};

// True of those, and of the pooler of models without a classifier, which no head here reads.
bool skips(const ModelSpec&, std::string_view stored) {
  const auto begins = [&](std::string_view prefix) { return stored.starts_with(prefix); };
  return stored.find("pooler.dense.") != std::string_view::npos ||
         stored.ends_with("embeddings.mask_token") || std::ranges::any_of(kOtherHeads, begins);
}

// A linear of a layer; its files name it as transformers 4 did.
std::string module_name(std::string_view module) {
  constexpr std::string_view kLayers = "encoder.layer.";
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"attention.attention.query", "attention.q_proj"},
      {"attention.attention.key", "attention.k_proj"},
      {"attention.attention.value", "attention.v_proj"},
      {"attention.output.dense", "attention.o_proj"},
      {"intermediate.dense", "mlp.fc1"},
      {"output.dense", "mlp.fc2"}};
  const size_t at = module.find(kLayers);
  const size_t dot = at == module.npos ? at : module.find('.', at + kLayers.size());
  if (dot == module.npos) return std::string(module);
  const std::string_view number = module.substr(at + kLayers.size(), dot - at - kLayers.size());
  for (const auto& [old, name] : kNames) {
    const std::string_view rest = module.substr(dot + 1);
    if (rest == old || (rest.starts_with(old) && rest[old.size()] == '.'))
      return fmt::format("{}layers.{}.{}{}", module.substr(0, at), number, name,
                         rest.substr(old.size()));
  }
  return std::string(module);
}

// Names of vision transformers made of PyTorch's TransformerEncoderLayer, and of those whose layers
// are Residual(PreNorm(...)) (vit-pytorch), by how they begin; of layers behind their number.
struct Renamed {
  std::string_view from, to;
};
constexpr Renamed kOfModel[] = {
    {"cls_token", "embeddings.cls_token"},
    {"pos_embed", "embeddings.position_embeddings"},
    {"pos_embedding", "embeddings.position_embeddings"},
    {"patch_embed.proj.", "embeddings.patch_embeddings.projection."},
    {"patch_to_embedding.", "embeddings.patch_embeddings.projection."},
};
constexpr Renamed kOfLayer[] = {
    {"self_attn.in_proj_", "attention.attention.qkv."},
    {"self_attn.out_proj.", "attention.output.dense."},
    {"linear1.", "intermediate.dense."},
    {"linear2.", "output.dense."},
    {"norm1.", "layernorm_before."},
    {"norm2.", "layernorm_after."},
    {"0.fn.norm.", "layernorm_before."},
    {"0.fn.fn.to_qkv.", "attention.attention.qkv."},
    {"0.fn.fn.to_out.", "attention.output.dense."},
    {"1.fn.norm.", "layernorm_after."},
    {"1.fn.fn.net.0.", "intermediate.dense."},
    {"1.fn.fn.net.2.", "output.dense."},
};
constexpr std::string_view kForeignLayers = "transformer.layers.", kForeignHead = "mlp_head.";

// A name that ends in "." or "_" begins others, the rest is whole.
std::optional<std::string> renamed_by(std::span<const Renamed> list, std::string_view stored) {
  for (const auto& [from, to] : list) {
    const bool is_begin = from.ends_with('.') || from.ends_with('_');
    if (is_begin ? stored.starts_with(from) : stored == from)
      return std::string(to).append(stored.substr(from.size()));
  }
  return std::nullopt;
}

std::string renamed(const ModelSpec& spec, std::string_view stored) {
  const std::string prefix(model_def(spec.kind).prefix);
  if (const auto name = renamed_by(kOfModel, stored)) return prefix + *name;
  if (stored.starts_with(kForeignHead)) {  // a norm or a linear, then the last linear
    const std::string_view rest = stored.substr(kForeignHead.size());
    const std::string leaf(rest.substr(rest.rfind('.') + 1));
    const bool is_first = rest.starts_with("0.");
    if (spec.classifier_hidden > 0)
      return fmt::format("classifier.{}.{}", is_first ? "dense" : "out_proj", leaf);
    return is_first ? prefix + "layernorm." + leaf : "classifier." + leaf;
  }
  if (!stored.starts_with(kForeignLayers)) return std::string(stored);
  const std::string_view rest = stored.substr(kForeignLayers.size());
  const size_t dot = std::min(rest.find('.'), rest.size() - 1);
  const auto name = renamed_by(kOfLayer, rest.substr(dot + 1));
  if (!name) return std::string(stored);
  return fmt::format("{}encoder.layer.{}.{}", prefix, rest.substr(0, dot), *name);
}

struct Projections {
  ValueId q, k, v;
};

Projections projections(Blocks& b, ValueId h) {
  const ModelSpec& spec = b.spec();
  const int64_t width = spec.heads * spec.head_dim;
  const LinearOptions options = {.bias = bias_if(spec.qkv_bias)};
  if (spec.fused_qkv) {
    const ValueId all = b.linear(h, "attention.attention.qkv", 3 * width, options);
    return {b.columns(all, 0, width), b.columns(all, width, width),
            b.columns(all, 2 * width, width)};
  }
  const ValueId q = b.linear(h, "attention.attention.query", width, options);
  const ValueId k = b.linear(h, "attention.attention.key", width, options);
  return {q, k, b.linear(h, "attention.attention.value", width, options)};
}

ValueId mlp(Blocks& b, ValueId x) {
  constexpr LinearOptions kWide = {.bias = WithBias::yes, .whole_path = true};
  const ValueId wide = b.linear(x, "intermediate.dense", b.spec().ffn, kWide);
  if (!b.spec().mlp_relu) return b.gelu(wide, "intermediate.act");
  return b.relu(wide, "intermediate.act");
}

ValueId layer(Blocks& b, ValueId x) {
  const ModelSpec& spec = b.spec();
  constexpr LinearOptions kResidual = {
      .use = MatrixUse::residual, .bias = WithBias::yes, .whole_path = true};
  const auto norm = [&](ValueId value, std::string_view path, bool is_here) {
    return is_here ? b.layer_norm(value, path) : value;
  };
  const auto [q, k, v] = projections(b, norm(x, "layernorm_before", !spec.post_norm));
  const ValueId o =
      b.attention(q, k, v, {.mask = AttentionMask::full, .scale = spec.attention_scale});
  x = b.add(x, b.linear(o, "attention.output.dense", spec.hidden, kResidual));
  x = norm(x, "layernorm_before", spec.post_norm);
  const ValueId y = mlp(b, norm(x, "layernorm_after", !spec.post_norm));
  x = b.add(x, b.linear(y, "output.dense", spec.hidden, kResidual));
  return norm(x, "layernorm_after", spec.post_norm);
}

ValueId classes(Blocks& b, ValueId first) {
  const ModelSpec& spec = b.spec();
  constexpr LinearOptions kBias = {.bias = WithBias::yes};
  if (spec.classifier_hidden == 0) return b.linear(first, "classifier", spec.classes, kBias);
  b.enter(-1, "classifier.");
  const ValueId wide = b.linear(first, "dense", spec.classifier_hidden, kBias);
  return b.linear(b.gelu(wide, "act"), "out_proj", spec.classes, kBias);
}

Outputs build(Blocks& b) {
  const ModelSpec& spec = b.spec();
  const bool is_deit = spec.kind == ModelKind::deit;
  const std::string prefix(model_def(spec.kind).prefix);
  const int64_t hidden = spec.hidden, n = row_tokens(spec, 0);
  b.enter(-1, prefix + "embeddings.");
  ValueId first = b.table("cls_token", 1, {1, 1, hidden});
  if (is_deit) first = b.stacked(first, b.table("distillation_token", 1, {1, 1, hidden}));
  const ValueId places = b.table("position_embeddings", n, {1, n, hidden});
  ValueId x = b.linear(b.patches(b.input("pixels")), "patch_embeddings.projection", hidden,
                       {.bias = WithBias::yes,
                        .file_shape = {hidden, spec.channels, spec.patch_size, spec.patch_size}});
  x = b.add_rows(b.with_first_rows(first, x), places);
  for (int i = 0; i < spec.layers; ++i) {
    b.enter(i, fmt::format("{}encoder.layer.{}.", prefix, i));
    x = layer(b, x);
  }
  b.enter(-1, prefix);
  if (spec.final_norm) x = b.layer_norm(x, "layernorm");
  const ValueId y = b.row_of_each(x, 0);
  if (head_of(spec).head == ModelHead::features) return {y};
  b.enter(-1, "");
  return {classes(b, y)};
}

}  // namespace

constinit const ModelDef kVit = image_model({.kind = ModelKind::vit,
                                             .name = "vit",
                                             .architecture = "ViTForImageClassification",
                                             .prefix = "vit.",
                                             .head = "classifier.weight",
                                             .hf_keys = kKeys,
                                             .own_hf_keys = {},
                                             .hf_neutrals = {},
                                             .build = build,
                                             .class_tokens = 1,
                                             .heads = kVitHeads,
                                             .head_aliases = kVitAliases,
                                             .head_prefixes = kHeadPrefixes,
                                             .skips = skips,
                                             .renamed = renamed,
                                             .module_name = module_name});

const ModelDef kDeit = [] {
  ModelDef def = kVit;
  def.kind = ModelKind::deit;
  def.name = "deit";
  def.architecture = "DeiTForImageClassification";
  def.prefix = "deit.";
  def.class_tokens = 2;
  def.heads = kDeitHeads;
  def.head_aliases = kDeitAliases;
  return def;
}();

}  // namespace octet
