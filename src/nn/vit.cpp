// Vision transformers: patches of an image, a token that stands for its class, pre-norm layers of
// full attention. DeiT has a second token, of distillation, which its classifier leaves out.
// Source: Dosovitskiy et al. 2021; Touvron et al. 2021. Names: ViTForImageClassification,
// DeiTForImageClassification.
#include "nn/blocks.h"
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
    {.field = "gelu", .key = "hidden_act", .absent = static_cast<int>(GeluKind::erf)},
};
constexpr HfNeutral kNeutrals[] = {{.key = "qkv_bias", .value = "true"}};

constexpr HeadDef kVitHeads[] = {
    {ModelHead::classes, "ViTForImageClassification", "classes", Per::row, "classes"},
    {ModelHead::features, "ViTModel", "features", Per::row, ""},
};
constexpr HeadDef kDeitHeads[] = {
    {ModelHead::classes, "DeiTForImageClassification", "classes", Per::row, "classes"},
    {ModelHead::features, "DeiTModel", "features", Per::row, ""},
};

constexpr std::string_view kHeadPrefixes[] = {"classifier."};

// The pooler of models without a classifier, which no head here reads.
bool skips(const ModelSpec&, std::string_view stored) {
  return stored.find("pooler.dense.") != std::string_view::npos;
}

std::vector<InputSpec> images(const ModelSpec& spec, const BatchSize&) {
  return {{.name = "pixels",
           .per = Per::row,
           .inner = {spec.channels, spec.image_size, spec.image_size},
           .type = HostType::real}};
}

ValueId layer(Blocks& b, ValueId x) {
  const int64_t width = b.spec().heads * b.spec().head_dim, hidden = b.spec().hidden;
  const ValueId h = b.layer_norm(x, "layernorm_before");
  const ValueId q = b.linear(h, "attention.attention.query", width, {.bias = WithBias::yes});
  const ValueId k = b.linear(h, "attention.attention.key", width, {.bias = WithBias::yes});
  const ValueId v = b.linear(h, "attention.attention.value", width, {.bias = WithBias::yes});
  const ValueId o = b.attention(q, k, v, {.mask = AttentionMask::full});
  constexpr LinearOptions kWide = {.bias = WithBias::yes, .whole_path = true};
  constexpr LinearOptions kResidual = {
      .use = MatrixUse::residual, .bias = WithBias::yes, .whole_path = true};
  x = b.add(x, b.linear(o, "attention.output.dense", hidden, kResidual));
  const ValueId wide =
      b.linear(b.layer_norm(x, "layernorm_after"), "intermediate.dense", b.spec().ffn, kWide);
  return b.add(x, b.linear(b.gelu(wide, "intermediate.act"), "output.dense", hidden, kResidual));
}

Outputs build(Blocks& b) {
  const ModelSpec& spec = b.spec();
  const bool is_deit = spec.kind == ModelKind::deit;
  const std::string prefix(model_def(spec.kind).prefix);
  const int64_t hidden = spec.hidden, side = spec.image_size / spec.patch_size,
                n_first = is_deit ? 2 : 1, n = side * side + n_first;
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
  const ValueId y = b.row_of_each(b.layer_norm(x, "layernorm"), 0);
  if (head_of(spec).head == ModelHead::features) return {y};
  b.enter(-1, "");
  return {b.linear(y, "classifier", spec.classes, {.bias = WithBias::yes})};
}

}  // namespace

const ModelDef kVit = {.kind = ModelKind::vit,
                       .name = "vit",
                       .architecture = "ViTForImageClassification",
                       .prefix = "vit.",
                       .head = "classifier.weight",
                       .positions = Positions::learned,
                       .mlp = MlpKind::gelu,
                       .grouped_heads = false,
                       .hf_keys = kKeys,
                       .own_hf_keys = {},
                       .hf_neutrals = kNeutrals,
                       .build = build,
                       .inputs = images,
                       .outputs = head_output,
                       .loss = head_loss,
                       .writes_text = false,
                       .reads_text = false,
                       .heads = kVitHeads,
                       .head_prefixes = kHeadPrefixes,
                       .skips = skips};

const ModelDef kDeit = [] {
  ModelDef def = kVit;
  def.kind = ModelKind::deit;
  def.name = "deit";
  def.architecture = "DeiTForImageClassification";
  def.prefix = "deit.";
  def.heads = kDeitHeads;
  return def;
}();

}  // namespace octet
