#include "nn/fields.h"

#include <algorithm>

#include "base/error.h"
#include "nn/field_enums.h"
#include "nn/list.h"
#include "nn/model.h"

namespace octet {
namespace {

constexpr double kMinEps = 1e-30;  // what is divided by it stays a normal number
constexpr double kMaxPositions = 1 << 24;

// True if the model's config.json has a key for the field.
bool listed(const ModelSpec& spec, std::string_view field) {
  const ModelDef& def = model_def(spec.kind);
  return find_hf_key(def, field) != nullptr ||
         (def.sees_pictures && find_hf_key(model_def(spec.text), field) != nullptr);
}
bool has_attention(const ModelSpec& spec, std::string_view) {
  return !model_def(spec.kind).is_convolutional;
}
bool has_ffn(const ModelSpec& spec, std::string_view field) {
  return has_attention(spec, field) && !model_def(spec.kind).is_recurrent;
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
bool is_longrope(const ModelSpec& spec, std::string_view field) {
  return listed(spec, field) && spec.rope_scaling == RopeScaling::longrope;
}
bool has_attention_factor(const ModelSpec& spec, std::string_view field) {
  return is_yarn(spec, field) || is_longrope(spec, field);
}
bool has_original(const ModelSpec& spec, std::string_view field) {
  return is_llama3(spec, field) || has_attention_factor(spec, field);
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
    {"model.ffn", &ModelSpec::ffn, within(1, 1 << 22), derived, has_ffn, "",
     "width of the feed-forward block; 0: 4 x hidden for gpt2, else 8/3 x hidden rounded up to "
     "128"},
    {"model.vocab", &ModelSpec::vocab, within(2, 1 << 24), key, listed, "",
     "tokens in the vocabulary"},
    // clang-format off
    {"model.head", &kHeadKind, {}, key, has_heads, "",
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
     "models that read or see pictures: width and height of one"},
    {"model.patch_size", &ModelSpec::patch_size, within(1, 1 << 14), key, listed, "pixels",
     "vit, deit, llava, idefics3: width and height of a patch; divides image_size of vit and deit"},
    {"model.channels", &ModelSpec::channels, within(1, 1 << 10), key, listed, "",
     "models that read or see pictures: values of a pixel"},
    {"model.post_norm", &ModelSpec::post_norm, {}, key, listed, "",
     "vit, deit, llava (its tower): norms on what a sum gives, not on what is added to it"},
    {"model.mlp_relu", &ModelSpec::mlp_relu, {}, key, listed, "",
     "vit, deit: ReLU in place of GELU"},
    {"model.qkv_bias", &ModelSpec::qkv_bias, {}, key, listed, "",
     "vit, deit: queries, keys and values have biases"},
    {"model.fused_qkv", &ModelSpec::fused_qkv, {}, key, listed, "",
     "vit, deit: queries, keys and values are one matrix"},
    {"model.final_norm", &ModelSpec::final_norm, {}, key, listed, "",
     "vit, deit: a norm before the classifier"},
    {"model.classifier_hidden", &ModelSpec::classifier_hidden, within(0, 1 << 20), key, listed, "",
     "vit, deit: width of a linear with GELU before the classifier; 0: none"},
    {"model.attention_scale", &ModelSpec::attention_scale, within(0, 1e6), key, listed, "",
     "vit, deit: scores are q k times this; 0: 1 / sqrt(head_dim)"},
    {"model.embedding_size", &ModelSpec::embedding_size, within(1, 1 << 16), derived, listed, "",
     "resnet: channels of the first convolution; 0: 64, with cifar 16. opt: width of embeddings; "
     "0: hidden"},
    {"model.depths", &ModelSpec::depths, within(1, 4096), derived, listed, "",
     "resnet: residual blocks of each stage, [3, 4, 6, 3] for example; 0: those of ResNet-50, with "
     "cifar of ResNet-20"},
    {"model.hidden_sizes", &ModelSpec::hidden_sizes, within(1, 1 << 16), derived, listed, "",
     "resnet: channels of each stage, as many as depths; 0: 64 and twice as many from stage to "
     "stage, with bottlenecks from 256 on, with cifar from 16 on"},
    {"model.layer_type", &kBlock, {}, key, listed, "",
     "resnet: blocks of two convolutions of 3 x 3, or of one between two of 1 x 1"},
    {"model.downsample_in_first_stage", &ModelSpec::downsample_in_first_stage, {}, key, listed, "",
     "resnet: the first stage has half the pixels of a side, too"},
    {"model.downsample_in_bottleneck", &ModelSpec::downsample_in_bottleneck, {}, key, listed, "",
     "resnet: the first convolution of a bottleneck has the stride, not the second"},
    {"model.cifar", &ModelSpec::cifar, {}, key, listed, "",
     "resnet: a first convolution of 3 x 3 without pooling, and shortcuts without weights, for "
     "small pictures; blocks are basic"},
    {"model.folded_norms", &ModelSpec::folded_norms, {}, key, listed, "",
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
    {"model.first_layer_is_expansion", &ModelSpec::first_layer_is_expansion, {}, key, listed, "",
     "mobilenet_v2: the first block begins with the depthwise convolution"},
    {"model.finegrained_output", &ModelSpec::finegrained_output, {}, key, listed, "",
     "mobilenet_v2: 1280 channels at the end, also with a depth_multiplier below 1"},
    {"model.tf_padding", &ModelSpec::tf_padding, {}, key, listed, "",
     "mobilenet_v2: borders as TensorFlow has them, the larger half below and on the right"},
    {"model.batch_norm", &ModelSpec::batch_norm, {}, key, listed, "",
     "vgg: a batch norm behind each convolution"},
    {"model.growth_rate", &ModelSpec::growth_rate, within(1, 1 << 16), key, listed, "",
     "densenet: channels that a layer adds"},
    {"model.bn_size", &ModelSpec::bn_size, within(1, 1 << 10), key, listed, "",
     "densenet: a layer's first convolution has so many times growth_rate"},
    {"model.source_seq", &ModelSpec::source_seq, within(1, kMaxPositions), run, listed, "tokens",
     "models that translate: longest source"},
    {"model.decoder_layers", &ModelSpec::decoder_layers, within(1, 4096), derived, listed, "",
     "models that translate: layers of the decoder; 0: as many as layers, which are the "
     "encoder's"},
    {"model.start_token", &ModelSpec::start_token, within(0, 1 << 24), run, listed, "",
     "models that translate: the token that a target begins with"},
    {"model.relative_buckets", &ModelSpec::relative_buckets, within(4, 1 << 16), key, listed, "",
     "t5, mt5: numbers a head that are added to scores, by the distance of query and key; half of "
     "them are of one distance each"},
    {"model.relative_distance", &ModelSpec::relative_distance, within(2, kMaxPositions), key,
     listed, "tokens", "t5, mt5: from this distance on all have the last of these numbers"},
    {"model.feed_forward", &kFeedForward, {}, key, listed, "",
     "t5, mt5: feed-forward block: ReLU, or GELU by tanh times a second linear"},
    {"model.scale_head", &ModelSpec::scale_head, {}, key, listed, "",
     "t5: what the head reads is divided by sqrt(hidden), as T5 1.0 with its tied head has it"},
    {"model.activation", &kActivation, {}, key, listed, "", "marian: of the feed-forward block"},
    {"model.scale_embedding", &ModelSpec::scale_embedding, {}, key, listed, "",
     "marian: embeddings are multiplied by sqrt(hidden)"},
    {"model.text", &kText, {}, key, listed, "", "llava, idefics3: kind of the decoder"},
    {"model.tower", &kTower, {}, key, listed, "", "llava: what sees the pictures"},
    {"model.vision_hidden", &ModelSpec::vision_hidden, within(1, 1 << 20), key, listed, "",
     "llava, idefics3: width of the tower"},
    {"model.vision_layers", &ModelSpec::vision_layers, within(1, 4096), key, listed, "",
     "llava, idefics3: layers of the tower"},
    {"model.vision_heads", &ModelSpec::vision_heads, within(1, 4096), key, listed, "",
     "llava, idefics3: heads of the tower; divides vision_hidden"},
    {"model.vision_ffn", &ModelSpec::vision_ffn, within(1, 1 << 22), derived, listed, "",
     "llava, idefics3: width of the tower's feed-forward block; 0: 4 x vision_hidden"},
    {"model.vision_eps", &ModelSpec::vision_eps, within(kMinEps, 1), key, listed, "",
     "llava, idefics3: epsilon of the tower's norms"},
    {"model.vision_act", &kVisionAct, {}, key, listed, "",
     "llava, idefics3: of the tower's feed-forward block; usual: quick_gelu of clip, gelu_tanh of "
     "siglip"},
    {"model.vision_layer", &ModelSpec::vision_layer, within(-4096, 4096), key, listed, "",
     "llava: the tower's hidden state that is read: n behind its n-th layer, -1 behind the last, "
     "-2 behind the one before; layers behind it are not there"},
    {"model.vision_select", &kSelect, {}, key, listed, "",
     "llava: its rows that are read: all but the first, which is CLIP's class token, or all"},
    {"model.projector_act", &kProjectorAct, {}, key, listed, "",
     "llava: between the projector's two linears; usual: gelu_erf"},
    {"model.projector_bias", &ModelSpec::projector_bias, {}, key, listed, "",
     "llava: the projector's linears have biases"},
    {"model.projector_downsample", &ModelSpec::projector_downsample, within(1, 64), key, listed, "",
     "llava: so many rows and columns of the tower's patches become one row of the decoder, behind "
     "a norm, as VILA has it; 1: each is one. Names and key are Octet's own"},
    {"model.pixel_shuffle", &ModelSpec::pixel_shuffle, within(1, 64), key, listed, "",
     "idefics3: so many rows and columns of the tower's patches become one row of the decoder"},
    {"model.image_token", &ModelSpec::image_token, within(0, 1 << 24), key, listed, "",
     "llava, idefics3: the token that stands where pictures are"},
    // clang-format on
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
    {"model.mlp_act",
     &kMlpAct,
     {},
     key,
     listed,
     "",
     "rotary decoders and towers: what stands between the feed-forward block's linears, of a gated "
     "one on its gate; usual: as the kind has it; relu2: ReLU's square"},
    {"model.attention_out_bias",
     &ModelSpec::attention_out_bias,
     {},
     key,
     listed,
     "",
     "seed_oss: the projection behind attention has a bias"},
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
    {"model.window_layers", &ModelSpec::window_layers, within(0, 1), derived, listed, "",
     "a 1 for each layer with a sliding window, a 0 for each without; []: by window_from, or as "
     "the kind has them"},
    {"model.attention_softcap", &ModelSpec::attention_softcap, within(0, 1e6), key, listed, "",
     "gemma2: attention scores are c tanh(score / c); 0: as they are"},
    {"model.logit_softcap", &ModelSpec::logit_softcap, within(0, 1e6), key, listed, "",
     "gemma2, gemma3_text: logits are c tanh(logit / c); 0: as they are"},
    {"model.query_pre_attn_scalar", &ModelSpec::query_pre_attn_scalar, within(1, 1 << 24), derived,
     listed, "", "gemma: attention scores are q k / sqrt(this); 0: head_dim"},
    {"model.embedding_multiplier", &ModelSpec::embedding_multiplier, above(0, 1e9), key, listed, "",
     "granite: factor of the embedding"},
    {"model.attention_multiplier", &ModelSpec::attention_multiplier, within(0, 1e9), derived,
     listed, "", "granite: attention scores are q k times this; 0: 1 / sqrt(head_dim)"},
    {"model.residual_multiplier", &ModelSpec::residual_multiplier, above(0, 1e9), key, listed, "",
     "granite: factor of what attention and feed-forward block add"},
    {"model.logits_scaling", &ModelSpec::logits_scaling, above(0, 1e9), key, listed, "",
     "granite: divisor of the logits"},
    {"model.logit_scale", &ModelSpec::logit_scale, above(0, 1e9), key, listed, "",
     "cohere2: factor of the logits"},
    {"model.no_rope_every", &ModelSpec::no_rope_every, within(0, 4096), key, listed, "",
     "smollm3: each n-th layer has no rotary positions; 0: none"},
    // clang-format off
    {"model.norm_before", &ModelSpec::norm_before, {}, key, listed, "",
     "opt: norms on what a block reads, not on the sum behind it"},
    {"model.global_head_dim", &ModelSpec::global_head_dim, within(2, 1 << 16), derived, listed, "",
     "gemma4_text: head_dim of layers without a window; 0: as in the others"},
    {"model.global_kv_heads", &ModelSpec::global_kv_heads, within(1, 4096), derived, listed, "",
     "gemma4_text: kv_heads of layers without a window, with keys_are_values; 0: as in the others"},
    {"model.keys_are_values", &ModelSpec::keys_are_values, {}, key, listed, "",
     "gemma4_text: layers without a window have one projection for keys and values"},
    {"model.layer_input", &ModelSpec::layer_input, within(0, 1 << 16), key, listed, "",
     "gemma4_text: numbers of each token that a layer reads besides; 0: none"},
    {"model.shared_kv_layers", &ModelSpec::shared_kv_layers, within(0, 4096), key, listed, "",
     "gemma4_text: so many last layers have the keys and values of the last one before them, with "
     "a window or without"},
    {"model.wide_shared_mlp", &ModelSpec::wide_shared_mlp, {}, key, listed, "",
     "gemma4_text: their feed-forward blocks are twice as wide"},
    {"model.linear_layers", &ModelSpec::linear_layers, within(0, 1), derived, listed, "",
     "qwen3_5_text: a 1 for each layer of the gated delta rule, a 0 for each of attention; []: all "
     "but each fourth and the last"},
    {"model.linear_key_heads", &ModelSpec::linear_key_heads, within(1, 4096), key, listed, "",
     "qwen3_5_text: heads of queries and keys of the gated delta rule"},
    {"model.linear_value_heads", &ModelSpec::linear_value_heads, within(1, 4096), key, listed, "",
     "qwen3_5_text: heads of values, a multiple of linear_key_heads"},
    {"model.linear_key_dim", &ModelSpec::linear_key_dim, within(1, 1 << 16), key, listed, "",
     "qwen3_5_text: width of the former"},
    {"model.linear_value_dim", &ModelSpec::linear_value_dim, within(1, 1 << 16), key, listed, "",
     "qwen3_5_text: width of the latter"},
    {"model.conv_width", &ModelSpec::conv_width, within(1, 64), key, listed, "",
     "qwen3_5_text: tokens that the convolution before the gated delta rule sees"},
    // clang-format on
    {"model.rope_theta", &ModelSpec::rope_theta, within(1, 1e15), key, listed, "",
     "base of the rotary angles"},
    {"model.window_rope_theta", &ModelSpec::window_rope_theta, within(1, 1e15), key, listed, "",
     "gemma3_text, olmo3: the same of layers with a sliding window, which no scaling changes"},
    {"model.rope_share", &ModelSpec::rope_share, within(0, 1), key, listed, "",
     "the part of a head's width that is rotated, its first"},
    {"model.rope_scaling.type",
     &kScaling,
     {},
     key,
     listed,
     "",
     "how rotary angles are stretched beyond the trained length"},
    {"model.rope_scaling.factor", &ModelSpec::rope_factor, within(1, kMaxPositions), derived,
     is_scaled, "",
     "by how much the length grows; 0: max_positions / original_max_position of yarn and longrope"},
    {"model.rope_scaling.low_freq_factor", &ModelSpec::rope_low_freq_factor,
     above(0, kMaxPositions), key, is_llama3, "",
     "llama3: wavelengths above original_max_position / this are divided by factor"},
    {"model.rope_scaling.high_freq_factor", &ModelSpec::rope_high_freq_factor,
     above(0, kMaxPositions), key, is_llama3, "",
     "llama3: wavelengths below original_max_position / this stay"},
    {"model.rope_scaling.original_max_position", &ModelSpec::rope_original_max_position,
     within(1, kMaxPositions), derived, has_original, "tokens",
     "llama3, yarn, longrope: length that the model was first trained for; 0: max_positions"},
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
    {"model.rope_scaling.mscale", &ModelSpec::rope_mscale, within(0, 1e3), key, is_yarn, "",
     "yarn: with mscale_all_dim the factor of queries and keys is (1 + mscale ln(factor) / 10) / "
     "(1 "
     "+ mscale_all_dim ln(factor) / 10)"},
    {"model.rope_scaling.mscale_all_dim", &ModelSpec::rope_mscale_all_dim, within(0, 1e3), key,
     is_yarn, "", "yarn: see mscale; 0: without it"},
    {"model.rope_scaling.attention_factor", &ModelSpec::rope_attention_factor, within(0, 1e3),
     derived, has_attention_factor, "",
     "yarn, longrope: of rotated queries and of keys; 0: 1 + ln(factor) / 10, of longrope sqrt(1 + "
     "ln(factor) / ln(original_max_position))"},
    {"model.rope_scaling.short_factor", &ModelSpec::rope_short_factor, within(1e-6, 1e6), derived,
     is_longrope, "",
     "longrope: divisors of the frequencies where a sequence (in generation, the room of the "
     "cache) "
     "is at most original_max_position, one for each rotated pair"},
    {"model.rope_scaling.long_factor", &ModelSpec::rope_long_factor, within(1e-6, 1e6), derived,
     is_longrope, "", "longrope: the same of longer ones"},
    {"model.rope_scaling.llama_4_scaling_beta", &ModelSpec::llama4_beta, within(0, 1e3), key,
     listed, "",
     "ministral3: queries are multiplied by 1 + this ln(1 + floor(position / "
     "original_max_position))"},
};

// A number without two bounds would be cut somewhere below, in silence.
constexpr bool is_bounded(const ModelField& field) {
  const bool is_number = std::holds_alternative<int64_t ModelSpec::*>(field.member) ||
                         std::holds_alternative<ModelList>(field.member) ||
                         std::holds_alternative<ModelNumbers>(field.member) ||
                         std::holds_alternative<double ModelSpec::*>(field.member);
  return !is_number || (field.bounds.low >= -4096 && field.bounds.high <= 0x1p53);
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
