// T5 1.0 and 1.1 (Flan-T5) and mT5: an encoder of the source, and a decoder that attends to it;
// RMSNorm on what attention and feed-forward block read, no biases, positions by distance alone,
// scores that are not scaled. Source: Raffel et al. 2020; Shazeer 2020; Xue et al. 2021. Names:
// T5ForConditionalGeneration and MT5ForConditionalGeneration of transformers.
#include <cmath>

#include "nn/blocks.h"
#include "nn/list.h"
#include "nn/relative_positions.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "vocab", .key = "vocab_size"},
    {.field = "hidden", .key = "d_model"},
    {.field = "head_dim", .key = "d_kv"},
    {.field = "ffn", .key = "d_ff"},
    {.field = "layers", .key = "num_layers"},
    {.field = "decoder_layers", .key = "num_decoder_layers", .absent = 0, .zero_is_null = true},
    {.field = "heads", .key = "num_heads"},
    {.field = "relative_buckets", .key = "relative_attention_num_buckets", .absent = 32},
    {.field = "relative_distance", .key = "relative_attention_max_distance", .absent = 128},
    {.field = "norm_eps", .key = "layer_norm_epsilon", .absent = 1e-6},
    {.field = "feed_forward",
     .key = "feed_forward_proj",
     .absent = static_cast<int>(FeedForward::relu)},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 1},
    {.field = "source_seq", .key = "n_positions", .absent = 512},
    {.field = "start_token", .key = "decoder_start_token_id", .absent = 0},
};
// A tied head reads scaled values where a file says nothing of it.
constexpr HfKey kT5Keys[] = {
    {.field = "scale_head", .key = "scale_decoder_outputs", .absent_as = "tied"},
};
constexpr HfKey kMt5Keys[] = {
    {.field = "feed_forward",
     .key = "feed_forward_proj",
     .absent = static_cast<int>(FeedForward::gated_gelu)},
};
constexpr HfNeutral kNeutrals[] = {
    {.key = "is_encoder_decoder", .value = "true"},
    {.key = "is_decoder", .value = "false"},
};

std::vector<HfFollower> followers(const ModelSpec& spec) {
  const bool is_gated = spec.feed_forward == FeedForward::gated_gelu;
  return {{.key = "dense_act_fn", .value = is_gated ? "\"gelu_new\"" : "\"relu\""},
          {.key = "is_gated_act", .value = is_gated ? "true" : "false"},
          follower_name("hidden_size", spec.hidden),
          follower_name("num_attention_heads", spec.heads),
          follower_name("num_hidden_layers", spec.layers),
          follower_name("head_dim", spec.head_dim)};
}

// Tables that are `shared`, whatever files hold, and a bias that attention to the source has in no
// model.
bool skips(const ModelSpec&, std::string_view stored) {
  return stored.ends_with(".embed_tokens.weight") ||
         stored.ends_with(".EncDecAttention.relative_attention_bias.weight");
}

constexpr std::string_view kBias = "layer.0.SelfAttention.relative_attention_bias";

double inverse_root(int64_t n) {
  return 1 / std::sqrt(static_cast<double>(n));
}

// [rows, hidden]; of a scaled head its values are as large as what norms give.
ValueId embedded(Blocks& b, ValueId ids) {
  const ModelSpec& spec = b.spec();
  b.enter(-1, "");
  const bool is_large = spec.tied && spec.scale_head;
  return b.embedding_of("shared", ids,
                        {.n = spec.vocab, .width = spec.hidden, .std = is_large ? 1.0 : 0});
}

// x + out(attention(q(y), k(read), v(read))), of y = norm(x).
ValueId attended(Blocks& b, ValueId x, ValueId read, const std::string& path,
                 AttentionOptions options) {
  const ModelSpec& spec = b.spec();
  const int64_t width = spec.heads * spec.head_dim;
  const auto project = [&](ValueId of, const char* name, double std) {
    return b.linear(of, path + name, width, {.whole_path = true, .std = std});
  };
  const std::string layer = path.substr(0, path.rfind('.'));
  const ValueId y = b.rms_norm(x, layer + ".layer_norm");
  if (read == kNoValue) read = y;
  const ValueId q = project(y, ".q", inverse_root(spec.hidden * spec.head_dim));
  const ValueId k = project(read, ".k", inverse_root(spec.hidden));
  const ValueId v = project(read, ".v", inverse_root(spec.hidden));
  options.scale = 1;
  const ValueId o = b.attention(q, k, v, options);
  return b.add(
      x, b.linear(o, path + ".o", spec.hidden, {.whole_path = true, .std = inverse_root(width)}));
}

ValueId feed_forward(Blocks& b, ValueId x, const std::string& layer) {
  const ModelSpec& spec = b.spec();
  const std::string path = layer + ".DenseReluDense.";
  const auto wide = [&](ValueId of, const char* name) {
    return b.linear(of, path + name, spec.ffn,
                    {.whole_path = true, .std = inverse_root(spec.hidden)});
  };
  const ValueId y = b.rms_norm(x, layer + ".layer_norm");
  ValueId product = kNoValue;
  if (spec.feed_forward == FeedForward::relu) {
    product = b.relu(wide(y, "wi"), "act");
  } else {
    const ValueId gate = b.gelu(wide(y, "wi_0"), "act", GeluKind::tanh);
    const ValueId up = wide(y, "wi_1");
    product = b.mul(gate, up, "act");
  }
  return b.add(x, b.linear(product, path + "wo", spec.hidden,
                           {.whole_path = true, .std = inverse_root(spec.ffn)}));
}

ValueId encoder(Blocks& b, ValueId length) {
  const int64_t n = b.spec().source_seq;
  ValueId x = embedded(b, b.builder().reshape(b.input("source"), {b.size().batch * n}));
  b.enter(-1, "encoder.block.0.");
  const ValueId bias = relative_bias(b, kBias, Distances::both, n);
  const ValueId ends = b.of_each_row(length, n);
  for (int64_t i = 0; i < b.layers("encoder"); ++i) {
    b.enter_layer("encoder", i, fmt::format("encoder.block.{}.", i));
    x = attended(b, x, kNoValue, "layer.0.SelfAttention",
                 {.mask = AttentionMask::full, .key_ends = ends, .bias = bias});
    x = feed_forward(b, x, "layer.1");
  }
  b.enter(-1, "encoder.");
  return b.rms_norm(x, "final_layer_norm");
}

Outputs build(Blocks& b) {
  const ModelSpec& spec = b.spec();
  const ValueId length = b.input("source_length");
  const ValueId source = encoder(b, length);
  ValueId x = embedded(b, b.input("tokens"));
  b.enter(-1, "decoder.block.0.");
  const int64_t n = b.size().seq;
  const ValueId bias = b.size().cache > 0 ? cached_relative_bias(b, kBias)
                                          : relative_bias(b, kBias, Distances::before, n);
  const ValueId ends = b.of_each_row(length, n);
  for (int64_t i = 0; i < b.layers("decoder"); ++i) {
    b.enter_layer("decoder", i, fmt::format("decoder.block.{}.", i));
    x = attended(b, x, kNoValue, "layer.0.SelfAttention", {.bias = bias});
    x = attended(b, x, source, "layer.1.EncDecAttention",
                 {.mask = AttentionMask::full, .key_ends = ends, .keys = AttentionKeys::fixed});
    x = feed_forward(b, x, "layer.2");
  }
  b.enter(-1, "decoder.");
  x = b.rms_norm(x, "final_layer_norm");
  if (spec.scale_head) x = b.builder().scaled(x, inverse_root(spec.hidden));
  b.enter(-1, "");
  return {b.head(x, "shared.weight")};
}

}  // namespace

constinit const ModelDef kT5 = {.kind = ModelKind::t5,
                                .name = "t5",
                                .architecture = "T5ForConditionalGeneration",
                                .prefix = "",
                                .positions = Positions::relative,
                                .mlp = MlpKind::chosen,
                                .usual_norm_eps = 1e-6,
                                .grouped_heads = false,
                                .hf_keys = kKeys,
                                .own_hf_keys = kT5Keys,
                                .hf_neutrals = kNeutrals,
                                .hf_followers = followers,
                                .build = build,
                                .inputs = source_inputs,
                                .stacks = encoder_and_decoder,
                                .writes_text = false,
                                .translates = true,
                                .skips = skips};

const ModelDef kMt5 = [] {
  ModelDef def = kT5;
  def.kind = ModelKind::mt5;
  def.name = "mt5";
  def.architecture = "MT5ForConditionalGeneration";
  def.own_hf_keys = kMt5Keys;
  return def;
}();

}  // namespace octet
