// The shape of a model, and nothing of how it is trained: what run files, config.json and model
// builders share. nn/fields.h names its fields; a new one is a member here and a row there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/named_enum.h"
#include "ir/attr_enums.h"

namespace octet {

enum class ModelKind : uint8_t {
#define MODEL(kind, constant) kind,
#include "nn/models.def"
};

// Head on a model's last hidden state, and with it what the model gives:
//   text        logits [B*T, vocab] of the next tokens
//   features    nothing: features [B*T, hidden]
//   masked      logits [B*T, vocab] of tokens that were hidden
//   classes     classes [B, classes], of the first token
//   span        spans [B*T, 2]: logits of a span's start and end
//   value       value [B, 1]: a number, as one class is
//   embeddings  embeddings [B, hidden]: the features of a row's tokens, pooled
//   multi_label multi_label [B, classes]: as classes, of which a row has any number
enum class ModelHead : uint8_t {
  text,
  features,
  masked,
  classes,
  span,
  value,
  embeddings,
  multi_label
};
constexpr auto value_names(ModelHead) {
  return name_list("text", "features", "masked", "classes", "span", "value", "embeddings",
                   "multi_label");
}
// How the features of a row's tokens become one row: their mean, or the first one's.
enum class Pooling : uint8_t { mean, cls };
constexpr auto value_names(Pooling) {
  return name_list("mean", "cls");
}

// A residual block of a convolutional network: two convolutions of 3 x 3, or one between two of 1 x
// 1 that make it a quarter as wide.
enum class ResidualBlock : uint8_t { basic, bottleneck };
constexpr auto value_names(ResidualBlock) {
  return name_list("basic", "bottleneck");
}

// What stands between the linears of a feed-forward block: of a gated one on its gate. usual: what
// resolved() takes for the kind; relu2: ReLU's square; quick_gelu: x logistic(1.702 x).
enum class MlpAct : uint8_t { usual, silu, gelu_tanh, gelu_erf, relu, relu2, quick_gelu };
constexpr auto value_names(MlpAct) {
  return name_list("usual", "silu", "gelu_tanh", "gelu_erf", "relu", "relu2", "quick_gelu");
}
// Tower that sees pictures, of CLIP or of SigLIP, and which of its rows the decoder reads: all but
// the first, which is CLIP's class token, or all.
enum class VisionTower : uint8_t { clip, siglip };
constexpr auto value_names(VisionTower) {
  return name_list("clip", "siglip");
}
enum class VisionSelect : uint8_t { patches, all };
constexpr auto value_names(VisionSelect) {
  return name_list("patches", "all");
}
// The feed-forward block of T5: down(relu(up(x))), or down(gelu(gate(x)) * up(x)), GELU by tanh.
enum class FeedForward : uint8_t { relu, gated_gelu };
constexpr auto value_names(FeedForward) {
  return name_list("relu", "gated_gelu");
}
// Of the feed-forward block of marian; swish: x logistic(x).
enum class PlainActivation : uint8_t { swish, relu, gelu };
constexpr auto value_names(PlainActivation) {
  return name_list("swish", "relu", "gelu");
}

// True if ModelSpec::classes says how many numbers a row's are.
constexpr bool has_classes(ModelHead head) {
  return head == ModelHead::classes || head == ModelHead::multi_label;
}

// Zeros are filled by resolved().
struct ModelSpec {
  ModelKind kind = ModelKind::llama;
  int64_t hidden = 512, layers = 8, heads = 8;
  int64_t kv_heads = 0, head_dim = 0, ffn = 0;  // 0: heads, hidden / heads, by kind
  int64_t vocab = 256;
  int64_t max_positions = 2048;  // gpt2: rows of the position table; a bound of nothing elsewhere
  double norm_eps = 1e-5;
  bool tied = false;                // the head shares the embedding's weight
  GeluKind gelu = GeluKind::tanh;   // gpt2, gpt_neox
  MlpAct mlp_act = MlpAct::usual;   // of rotary decoders
  bool attention_bias = false;      // of the projections, where the architecture leaves it open
  bool attention_out_bias = false;  // seed_oss: of the output projection alone
  bool mlp_bias = false;
  double clip_qkv = 0;            // olmo: queries, keys and values stay within +-this; 0: no bound
  bool parallel_residual = true;  // gpt_neox: attention and MLP read the same stream
  int64_t sliding_window = 0;     // a query sees so many keys, its own the last; 0: all
  int64_t window_from = 0;        // qwen: the first layer with a window
  // A 1 for each layer with a window and a 0 for each without; empty: by window_from, or by kind.
  std::vector<int64_t> window_layers = {};
  // qwen3_5: the same of layers of the gated delta rule, whose heads and widths these are, and the
  // tokens that the convolution before it sees.
  std::vector<int64_t> linear_layers = {};
  int64_t linear_key_heads = 4, linear_value_heads = 8, linear_key_dim = 64, linear_value_dim = 64,
          conv_width = 4;
  double attention_softcap = 0;       // scores s become c tanh(s / c); 0: they stay
  double logit_softcap = 0;           // the same of logits
  int64_t query_pre_attn_scalar = 0;  // gemma: scores are q k / sqrt(this); 0: head_dim
  // granite: factors of the embedding, of the scores (0: 1 / sqrt(head_dim)) and of what a layer
  // adds, and a divisor of the logits. cohere2: a factor of the logits.
  double embedding_multiplier = 1, attention_multiplier = 0, residual_multiplier = 1,
         logits_scaling = 1, logit_scale = 1;
  int64_t no_rope_every = 0;  // smollm3: each n-th layer has no rotary positions; 0: none
  bool norm_before = true;    // opt: norms on what a block reads, not on the sum behind it
  // gemma4: of layers without a window, 0: as of the others; numbers that each token gives a layer;
  // last layers with an earlier one's keys and values.
  int64_t global_head_dim = 0, global_kv_heads = 0, layer_input = 0, shared_kv_layers = 0;
  bool keys_are_values = false, wide_shared_mlp = false;
  ModelHead head = ModelHead::text;  // encoders: text stands for their first one
  int64_t classes = 0;               // where has_classes(head); 0: those of a folder's head, else 2
  Pooling pooling = Pooling::mean;   // of embeddings: as the folder that they come from says
  int64_t token_types = 2;           // bert: rows of the table of token types
  int64_t pad_token = 1;             // roberta: positions begin at the row behind this id's
  int64_t image_size = 224;          // vit, deit: pixels of a side, and of a patch's
  int64_t patch_size = 16;
  int64_t channels = 3;
  bool post_norm = false;         // norms on what a sum gives, not on what is added to it
  bool mlp_relu = false;          // ReLU in place of GELU
  bool qkv_bias = true;           // biases of queries, keys and values
  bool fused_qkv = false;         // one matrix of the three
  bool final_norm = true;         // before the classifier
  int64_t classifier_hidden = 0;  // a linear of this width and GELU before it; 0: none
  double attention_scale = 0;     // 0: 1 / sqrt(head_dim)
  // resnet: the width of the first convolution, and blocks and width of each stage; 0 or empty: by
  // kind of block. cifar: a first convolution of 3 x 3, and shortcuts without weights.
  int64_t embedding_size = 0;
  std::vector<int64_t> depths = {}, hidden_sizes = {};
  ResidualBlock layer_type = ResidualBlock::basic;
  bool downsample_in_first_stage = false, downsample_in_bottleneck = false;
  bool cifar = false;
  bool folded_norms = false;  // batch norms are in the convolutions before them
  // t5, mt5, marian: what reads a source and writes about it.
  int64_t source_seq = 256;         // tokens that sources are padded to
  int64_t decoder_layers = 0;       // 0: as many as layers, which are the encoder's
  int64_t start_token = 0;          // that a target begins with, where it is written
  int64_t relative_buckets = 32;    // t5: numbers a head for distances, of which half are exact,
  int64_t relative_distance = 128;  // and all from this one on share the last
  FeedForward feed_forward = FeedForward::relu;
  bool scale_head = false;  // t5: what the head reads is divided by sqrt(hidden)
  PlainActivation activation = PlainActivation::swish;
  bool scale_embedding = false;  // marian: embeddings are multiplied by sqrt(hidden)
  // resnet: parts of a block's middle convolution, and channels of each where a stage has 64.
  int64_t groups = 1, width_per_group = 64;
  // mobilenet_v2: channels are those of the paper times depth_multiplier, rounded to multiples of
  // depth_divisible_by and at least min_depth; in a block expand_ratio times as many.
  double depth_multiplier = 1, expand_ratio = 6;
  int64_t depth_divisible_by = 8, min_depth = 8;
  int64_t output_stride = 32;  // pixels of a side of what one of the last pixels stands for
  bool first_layer_is_expansion = true, finegrained_output = true, tf_padding = true;
  bool batch_norm = true;                 // vgg: a batch norm behind each convolution
  int64_t growth_rate = 32, bn_size = 4;  // densenet: channels that a layer adds, and its neck's
  // llava, idefics3: a decoder of the kind `text`, whose fields are the others, and the tower, with
  // a width and layers of its own, that sees pictures of image_size. vision_layer: of its hidden
  // states the one that is read, n behind its n-th layer, -1 the last.
  ModelKind text = ModelKind::llama;
  VisionTower tower = VisionTower::clip;
  int64_t vision_hidden = 256, vision_layers = 4, vision_heads = 4, vision_ffn = 0;
  double vision_eps = 1e-5;
  MlpAct vision_act = MlpAct::usual, projector_act = MlpAct::usual;
  int64_t vision_layer = -2;
  VisionSelect vision_select = VisionSelect::patches;
  bool projector_bias = true;
  int64_t projector_downsample = 1;  // llava: so many rows of as many columns become one
  int64_t pixel_shuffle = 2;         // idefics3: so many rows of as many columns become one
  int64_t image_token = 0;           // that stands where pictures are
  int64_t images = 1;                // that a row has room for
  double rope_theta = 10000;         // rotary models; as are the fields below
  double window_rope_theta = 10000;  // gemma3, olmo3: of layers with a window, never scaled
  double rope_share = 1;             // of a head's width that is rotated, its first part
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1, rope_low_freq_factor = 1, rope_high_freq_factor = 4;
  int64_t rope_original_max_position = 8192;  // 0: max_positions
  double rope_beta_fast = 32, rope_beta_slow = 1;
  bool rope_truncate = true;
  double rope_mscale = 0, rope_mscale_all_dim = 0;  // yarn: how its factor follows from rope_factor
  double rope_attention_factor = 0;  // of yarn's, longrope's queries and keys; 0: by them
  // longrope: divisors of the frequencies, of sequences up to the original length and of longer.
  std::vector<double> rope_short_factor = {}, rope_long_factor = {};
  double llama4_beta = 0;  // ministral3: queries times 1 + b log(1 + floor(position / original))
  int64_t rope_seq = 0;    // the run's, of dynamic scaling, which is fixed at it; 0: the batch's
  bool operator==(const ModelSpec&) const = default;
};

}  // namespace octet
