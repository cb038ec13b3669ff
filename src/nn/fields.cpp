#include "nn/fields.h"

#include <algorithm>

#include "base/error.h"
#include "base/named_enum.h"
#include "nn/list.h"
#include "nn/model.h"

namespace octet {
namespace {

constexpr double kMinEps = 1e-30;  // what is divided by it stays a normal number
constexpr double kMaxPositions = 1 << 24;

template <auto Member>
int get_enum(const ModelSpec& spec) {
  return static_cast<int>(spec.*Member);
}
template <auto Member>
void set_enum(ModelSpec& spec, int value) {
  spec.*Member = static_cast<std::remove_reference_t<decltype(spec.*Member)>>(value);
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const ModelDef* model : all_models()) names.emplace_back(model->name);
  return names;
}
template <typename E>
std::vector<std::string> names_of() {
  const auto names = enum_names<E>();
  return {names.begin(), names.end()};
}

constexpr int value_of(GeluKind kind) {
  return static_cast<int>(kind);
}
constexpr int value_of(RopeScaling scaling) {
  return static_cast<int>(scaling);
}
constexpr HfName kHfGelus[] = {{"gelu_new", value_of(GeluKind::tanh)},
                               {"gelu_pytorch_tanh", value_of(GeluKind::tanh)},
                               {"gelu", value_of(GeluKind::erf)},
                               {"gelu_fast", value_of(GeluKind::tanh)}};
constexpr HfName kHfScalings[] = {{"default", value_of(RopeScaling::none)},
                                  {"linear", value_of(RopeScaling::linear)},
                                  {"llama3", value_of(RopeScaling::llama3)},
                                  {"dynamic", value_of(RopeScaling::dynamic)},
                                  {"yarn", value_of(RopeScaling::yarn)}};

constexpr int value_of(ResidualBlock block) {
  return static_cast<int>(block);
}
constexpr HfName kHfBlocks[] = {{"basic", value_of(ResidualBlock::basic)},
                                {"bottleneck", value_of(ResidualBlock::bottleneck)}};

constexpr ModelEnum kKind = {
    get_enum<&ModelSpec::kind>, set_enum<&ModelSpec::kind>, kind_names, {}};
constexpr ModelEnum kGelu = {get_enum<&ModelSpec::gelu>, set_enum<&ModelSpec::gelu>,
                             names_of<GeluKind>, kHfGelus};
constexpr ModelEnum kHeadKind = {
    get_enum<&ModelSpec::head>, set_enum<&ModelSpec::head>, names_of<ModelHead>, {}};
constexpr ModelEnum kBlock = {get_enum<&ModelSpec::layer_type>, set_enum<&ModelSpec::layer_type>,
                              names_of<ResidualBlock>, kHfBlocks};
constexpr ModelEnum kScaling = {get_enum<&ModelSpec::rope_scaling>,
                                set_enum<&ModelSpec::rope_scaling>, names_of<RopeScaling>,
                                kHfScalings};

// Whether the model's config.json has a key for the field.
bool listed(const ModelSpec& spec, std::string_view field) {
  return find_hf_key(model_def(spec.kind), field) != nullptr;
}
bool has_attention(const ModelSpec& spec, std::string_view) {
  return !model_def(spec.kind).is_convolutional;
}
bool has_heads(const ModelSpec& spec, std::string_view) {
  return !model_def(spec.kind).heads.empty();
}
bool is_classifier(const ModelSpec& spec, std::string_view field) {
  return has_heads(spec, field) && has_classes(head_of(spec).head);
}
bool is_scaled(const ModelSpec& spec, std::string_view field) {
  return listed(spec, field) && spec.rope_scaling != RopeScaling::none;
}
bool is_llama3(const ModelSpec& spec, std::string_view field) {
  return listed(spec, field) && spec.rope_scaling == RopeScaling::llama3;
}
bool is_yarn(const ModelSpec& spec, std::string_view field) {
  return listed(spec, field) && spec.rope_scaling == RopeScaling::yarn;
}
bool has_original(const ModelSpec& spec, std::string_view field) {
  return is_llama3(spec, field) || is_yarn(spec, field);
}

constexpr Bounds within(double low, double high) {
  return {.low = low, .high = high};
}
constexpr Bounds above(double low, double high) {
  return {.low = low, .high = high, .low_open = true};
}

using enum FieldOrigin;

constexpr ModelField kFields[] = {
    {"model.kind", &kKind, {}, key, nullptr, "", "architecture"},
    {"model.hidden", &ModelSpec::hidden, within(1, 1 << 20), key, has_attention, "",
     "width of the residual stream"},
    {"model.layers", &ModelSpec::layers, within(1, 4096), key, has_attention, "", "decoder layers"},
    {"model.heads", &ModelSpec::heads, within(1, 4096), key, has_attention, "",
     "query heads; divides hidden where head_dim is 0"},
    {"model.kv_heads", &ModelSpec::kv_heads, within(1, 4096), derived, has_attention, "",
     "key and value heads; divides heads; 0: as many as heads"},
    {"model.head_dim", &ModelSpec::head_dim, within(1, 1 << 16), derived, has_attention, "",
     "width of a head; 0: hidden / heads"},
    {"model.ffn", &ModelSpec::ffn, within(1, 1 << 22), derived, has_attention, "",
     "width of the feed-forward block; 0: 4 x hidden for gpt2, else 8/3 x hidden rounded up to "
     "128"},
    {"model.vocab", &ModelSpec::vocab, within(2, 1 << 24), key, listed, "",
     "tokens in the vocabulary"},
    {"model.head",
     &kHeadKind,
     {},
     key,
     has_heads,
     "",
     "encoders: what stands on the last hidden state; text: the first that the kind has, or "
     "that of model.path; another one beside model.path begins anew where the folder has none of "
     "its shape"},
    {"model.classes", &ModelSpec::classes, within(1, 1 << 24), derived, is_classifier, "",
     "classes of a classifier; beside model.path with `head: classes` or `multi_label` alone; 0: "
     "as many as the folder's classifier has, else 2"},
    {"model.token_types", &ModelSpec::token_types, within(1, 1 << 16), key, listed, "",
     "bert, roberta: types of tokens, as the first and the second text of a pair"},
    {"model.pad_token", &ModelSpec::pad_token, within(-1, 1 << 24), run, listed, "",
     "roberta: positions begin at the row behind this id's; -1: at the first"},
    {"model.image_size", &ModelSpec::image_size, within(1, 1 << 14), key, listed, "pixels",
     "models of pictures: width and height of an image"},
    {"model.patch_size", &ModelSpec::patch_size, within(1, 1 << 14), key, listed, "pixels",
     "vit, deit: width and height of a patch; divides image_size"},
    {"model.channels", &ModelSpec::channels, within(1, 1 << 10), key, listed, "",
     "models of pictures: values of a pixel"},
    {"model.post_norm",
     &ModelSpec::post_norm,
     {},
     key,
     listed,
     "",
     "vit, deit: norms on what a sum gives, not on what is added to it"},
    {"model.mlp_relu",
     &ModelSpec::mlp_relu,
     {},
     key,
     listed,
     "",
     "vit, deit: ReLU in place of GELU"},
    {"model.qkv_bias",
     &ModelSpec::qkv_bias,
     {},
     key,
     listed,
     "",
     "vit, deit: queries, keys and values have biases"},
    {"model.fused_qkv",
     &ModelSpec::fused_qkv,
     {},
     key,
     listed,
     "",
     "vit, deit: queries, keys and values are one matrix"},
    {"model.final_norm",
     &ModelSpec::final_norm,
     {},
     key,
     listed,
     "",
     "vit, deit: a norm before the classifier"},
    {"model.classifier_hidden", &ModelSpec::classifier_hidden, within(0, 1 << 20), key, listed, "",
     "vit, deit: width of a linear with GELU before the classifier; vgg: of the two linears with "
     "ReLU, 4096 in the paper; 0: none"},
    {"model.attention_scale", &ModelSpec::attention_scale, within(0, 1e6), key, listed, "",
     "vit, deit: scores are q k times this; 0: 1 / sqrt(head_dim)"},
    {"model.embedding_size", &ModelSpec::embedding_size, within(1, 1 << 16), derived, listed, "",
     "resnet, densenet: channels of the first convolution; 0: 64, with cifar 16"},
    {"model.depths", &ModelSpec::depths, within(1, 4096), derived, listed, "",
     "resnet, densenet, vgg: blocks, layers or convolutions of each stage, [3, 4, 6, 3] for "
     "example; 0: those of ResNet-50, with cifar of ResNet-20, of DenseNet-121, of VGG-16"},
    {"model.hidden_sizes", &ModelSpec::hidden_sizes, within(1, 1 << 16), derived, listed, "",
     "resnet, vgg: channels of each stage, as many as depths; 0: 64 and twice as many from stage "
     "to "
     "stage, with bottlenecks from 256 on, with cifar from 16 on; of vgg up to 512"},
    {"model.layer_type",
     &kBlock,
     {},
     key,
     listed,
     "",
     "resnet: blocks of two convolutions of 3 x 3, or of one between two of 1 x 1"},
    {"model.downsample_in_first_stage",
     &ModelSpec::downsample_in_first_stage,
     {},
     key,
     listed,
     "",
     "resnet: the first stage has half the pixels of a side, too"},
    {"model.downsample_in_bottleneck",
     &ModelSpec::downsample_in_bottleneck,
     {},
     key,
     listed,
     "",
     "resnet: the first convolution of a bottleneck has the stride, not the second"},
    {"model.cifar",
     &ModelSpec::cifar,
     {},
     key,
     listed,
     "",
     "resnet: a first convolution of 3 x 3 without pooling, and shortcuts without weights, for "
     "small pictures; blocks are basic"},
    {"model.folded_norms",
     &ModelSpec::folded_norms,
     {},
     key,
     listed,
     "",
     "convolutional networks: convolutions have biases, and no batch norms are behind them: those "
     "of the weights that are read are folded into them"},
    {"model.groups", &ModelSpec::groups, within(1, 1 << 16), key, listed, "",
     "resnet: groups of a bottleneck's middle convolution; ResNeXt-50's has 32"},
    {"model.width_per_group", &ModelSpec::width_per_group, within(1, 1 << 16), key, listed, "",
     "resnet: channels of a group in a stage whose bottlenecks are 64 wide"},
    {"model.depth_multiplier", &ModelSpec::depth_multiplier, above(0, 64), key, listed, "",
     "mobilenet_v2: channels are the paper's times this"},
    {"model.depth_divisible_by", &ModelSpec::depth_divisible_by, within(1, 1 << 10), key, listed,
     "", "mobilenet_v2: and multiples of this"},
    {"model.min_depth", &ModelSpec::min_depth, within(1, 1 << 16), key, listed, "",
     "mobilenet_v2: and at least this"},
    {"model.expand_ratio", &ModelSpec::expand_ratio, above(0, 64), key, listed, "",
     "mobilenet_v2: a block has so many times its input's channels"},
    {"model.output_stride", &ModelSpec::output_stride, within(1, 32), key, listed, "",
     "mobilenet_v2: 2, 4, 8, 16 or 32; where the extents have become so many times smaller, "
     "windows grow instead"},
    {"model.first_layer_is_expansion",
     &ModelSpec::first_layer_is_expansion,
     {},
     key,
     listed,
     "",
     "mobilenet_v2: the first block begins with the depthwise convolution"},
    {"model.finegrained_output",
     &ModelSpec::finegrained_output,
     {},
     key,
     listed,
     "",
     "mobilenet_v2: 1280 channels at the end, also with a depth_multiplier below 1"},
    {"model.tf_padding",
     &ModelSpec::tf_padding,
     {},
     key,
     listed,
     "",
     "mobilenet_v2: borders as TensorFlow has them, the larger half below and on the right"},
    {"model.batch_norm",
     &ModelSpec::batch_norm,
     {},
     key,
     listed,
     "",
     "vgg: a batch norm behind each convolution"},
    {"model.growth_rate", &ModelSpec::growth_rate, within(1, 1 << 16), key, listed, "",
     "densenet: channels that a layer adds"},
    {"model.bn_size", &ModelSpec::bn_size, within(1, 1 << 10), key, listed, "",
     "densenet: a layer's first convolution has so many times growth_rate"},
    {"model.max_positions", &ModelSpec::max_positions, within(1, kMaxPositions), run, nullptr,
     "tokens", "longest sequence"},
    {"model.tied",
     &ModelSpec::tied,
     {},
     key,
     nullptr,
     "",
     "the head shares the embedding's weight"},
    {"model.norm_eps", &ModelSpec::norm_eps, within(kMinEps, 1), key, nullptr, "",
     "epsilon of the norms"},
    {"model.gelu",
     &kGelu,
     {},
     key,
     listed,
     "",
     "gpt2, gpt_neox, encoders: GELU by its erf or by the tanh near it"},
    {"model.attention_bias",
     &ModelSpec::attention_bias,
     {},
     key,
     listed,
     "",
     "the projections around attention have biases"},
    {"model.mlp_bias",
     &ModelSpec::mlp_bias,
     {},
     key,
     listed,
     "",
     "the feed-forward block's linears have biases"},
    {"model.clip_qkv", &ModelSpec::clip_qkv, within(0, 1e6), key, listed, "",
     "olmo: queries, keys and values stay within +- this; 0: no bound"},
    {"model.parallel_residual",
     &ModelSpec::parallel_residual,
     {},
     key,
     listed,
     "",
     "gpt_neox: attention and feed-forward block read the same stream"},
    {"model.sliding_window", &ModelSpec::sliding_window, within(0, kMaxPositions), key, listed,
     "tokens", "keys that a query sees, its own the last; 0: all"},
    {"model.window_from", &ModelSpec::window_from, within(0, 4096), key, listed, "",
     "qwen2, qwen3: the first layer with a sliding window"},
    {"model.no_rope_every", &ModelSpec::no_rope_every, within(0, 4096), key, listed, "",
     "smollm3: each n-th layer has no rotary positions; 0: none"},
    {"model.rope_theta", &ModelSpec::rope_theta, within(1, 1e15), key, listed, "",
     "base of the rotary angles"},
    {"model.rope_share", &ModelSpec::rope_share, within(0, 1), key, listed, "",
     "gpt_neox: the part of a head's width that is rotated, its first"},
    {"model.rope_scaling.type",
     &kScaling,
     {},
     key,
     listed,
     "",
     "how rotary angles are stretched beyond the trained length"},
    {"model.rope_scaling.factor", &ModelSpec::rope_factor, within(1, kMaxPositions), key, is_scaled,
     "", "by how much the length grows"},
    {"model.rope_scaling.low_freq_factor", &ModelSpec::rope_low_freq_factor,
     above(0, kMaxPositions), key, is_llama3, "",
     "llama3: wavelengths above original_max_position / this are divided by factor"},
    {"model.rope_scaling.high_freq_factor", &ModelSpec::rope_high_freq_factor,
     above(0, kMaxPositions), key, is_llama3, "",
     "llama3: wavelengths below original_max_position / this stay"},
    {"model.rope_scaling.original_max_position", &ModelSpec::rope_original_max_position,
     within(1, kMaxPositions), derived, has_original, "tokens",
     "llama3, yarn: length that the model was first trained for; 0: max_positions"},
    {"model.rope_scaling.beta_fast", &ModelSpec::rope_beta_fast, above(0, kMaxPositions), key,
     is_yarn, "", "yarn: pairs that turn as often over original_max_position, or more, stay"},
    {"model.rope_scaling.beta_slow", &ModelSpec::rope_beta_slow, above(0, kMaxPositions), key,
     is_yarn, "", "yarn: pairs that turn as often, or less, are divided by factor"},
    {"model.rope_scaling.truncate",
     &ModelSpec::rope_truncate,
     {},
     key,
     is_yarn,
     "",
     "yarn: the bounds between them are whole numbers of pairs"},
    {"model.rope_scaling.attention_factor", &ModelSpec::rope_attention_factor, within(0, 1e3),
     derived, is_yarn, "", "yarn: of rotated queries and of keys; 0: 1 + ln(factor) / 10"},
};

// A number without two bounds would be cut somewhere below, in silence.
constexpr bool is_bounded(const ModelField& field) {
  const bool is_number = std::holds_alternative<int64_t ModelSpec::*>(field.member) ||
                         std::holds_alternative<ModelList>(field.member) ||
                         std::holds_alternative<double ModelSpec::*>(field.member);
  return !is_number || (field.bounds.low >= -1 && field.bounds.high <= 0x1p53);
}
static_assert(std::ranges::all_of(kFields, is_bounded));

}  // namespace

std::span<const ModelField> model_fields() {
  return kFields;
}

const ModelField& model_field(std::string_view name) {
  const auto at = std::ranges::find(kFields, name, &ModelField::name);
  CHECK(at != std::end(kFields));
  return *at;
}

}  // namespace octet
