// The Transformer of translation as Marian has it: an encoder of the source and a decoder that
// attends to it, LayerNorm behind each sum, sinusoidal positions, one table of embeddings for
// source, target and head, and a bias of the logits that is not trained. Source: Vaswani et al.
// 2017; Junczys-Dowmunt et al. 2018. Names: MarianMTModel of transformers.
#include <cmath>

#include "nn/blocks.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "vocab", .key = "vocab_size"},
    {.field = "hidden", .key = "d_model"},
    {.field = "ffn", .key = "encoder_ffn_dim"},
    {.field = "layers", .key = "encoder_layers"},
    {.field = "decoder_layers", .key = "decoder_layers"},
    {.field = "heads", .key = "encoder_attention_heads"},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 1024},
    {.field = "source_seq", .key = "source_positions", .absent_as = "max_positions"},
    {.field = "activation",
     .key = "activation_function",
     .absent = static_cast<int>(PlainActivation::gelu)},
    {.field = "scale_embedding", .key = "scale_embedding", .absent = 0},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 1},
    {.field = "start_token", .key = "decoder_start_token_id"},
};
// The ones behind share_encoder_decoder_embeddings are of older files, and read by nobody now.
constexpr HfNeutral kNeutrals[] = {
    {.key = "is_encoder_decoder", .value = "true"},
    {.key = "is_decoder", .value = "false"},
    {.key = "share_encoder_decoder_embeddings", .value = "true"},
    {.key = "add_bias_logits", .value = "false"},
    {.key = "add_final_layer_norm", .value = "false"},
    {.key = "normalize_before", .value = "false"},
    {.key = "normalize_embedding", .value = "false"},
    {.key = "static_position_embeddings", .value = "true"},
};

std::vector<HfFollower> followers(const ModelSpec& spec) {
  return {{.key = "decoder_ffn_dim", .value = std::to_string(spec.ffn)},
          {.key = "decoder_attention_heads", .value = std::to_string(spec.heads), .absent = "16"},
          {.key = "decoder_vocab_size", .value = std::to_string(spec.vocab)},
          {.key = "num_hidden_layers", .value = std::to_string(spec.layers)},
          follower_name("hidden_size", spec.hidden),
          follower_name("num_attention_heads", spec.heads)};
}

// Tables that are `shared`, and sines that are computed.
bool skips(const ModelSpec&, std::string_view stored) {
  return stored.ends_with(".embed_tokens.weight") || stored.ends_with(".embed_positions.weight");
}

constexpr std::string_view kHeadNames[] = {"final_logits_bias", "lm_head."};
constexpr LinearOptions kBias = {.bias = WithBias::yes, .whole_path = true};
constexpr LinearOptions kResidual = {
    .use = MatrixUse::residual, .bias = WithBias::yes, .whole_path = true};

// [N, hidden]: the sine and then the cosine of each position times 10000^(-2 i / hidden), i <
// hidden / 2, which is how rotary positions turn the vector (1, 0).
ValueId sines(Blocks& b, ValueId positions) {
  b.module("embed_positions");
  const int64_t n = b.shape(positions)[0], hidden = b.spec().hidden, half = hidden / 2;
  Builder& builder = b.builder();
  const ValueId ones =
      builder.concatenate({builder.fill({n, half}, 1), builder.fill({n, half}, 0)}, 1);
  const ValueId turned = builder.emit1(
      OpCode::rope, RopeAttrs{.heads = 1, .head_dim = hidden, .theta = 10000}, {ones, positions});
  return builder.concatenate({b.columns(turned, half, half), b.columns(turned, 0, half)}, 1);
}

ValueId embedded(Blocks& b, ValueId ids, ValueId positions) {
  const ModelSpec& spec = b.spec();
  b.enter(-1, "model.");
  ValueId x = b.embedding_of("shared", ids, {.n = spec.vocab, .width = spec.hidden});
  if (spec.scale_embedding) x = b.builder().scaled(x, std::sqrt(static_cast<double>(spec.hidden)));
  return b.add(x, sines(b, positions), "embed_positions");
}

// norm(x + out(attention(q(x), k(read), v(read)))).
ValueId attended(Blocks& b, ValueId x, ValueId read, const std::string& path,
                 const AttentionOptions& options) {
  const int64_t width = b.spec().heads * b.spec().head_dim;
  const ValueId q = b.linear(x, path + ".q_proj", width, kBias);
  const ValueId k = b.linear(read, path + ".k_proj", width, kBias);
  const ValueId v = b.linear(read, path + ".v_proj", width, kBias);
  const ValueId o = b.attention(q, k, v, options);
  const ValueId sum = b.add(x, b.linear(o, path + ".out_proj", b.spec().hidden, kResidual));
  return b.layer_norm(sum, path + "_layer_norm");
}

ValueId activated(Blocks& b, ValueId x) {
  constexpr MlpAct kActs[] = {MlpAct::silu, MlpAct::relu, MlpAct::gelu_erf};  // by PlainActivation
  return b.activation(x, "activation_fn", kActs[static_cast<size_t>(b.spec().activation)]);
}

ValueId feed_forward(Blocks& b, ValueId x) {
  const ValueId wide = activated(b, b.linear(x, "fc1", b.spec().ffn, kBias));
  return b.layer_norm(b.add(x, b.linear(wide, "fc2", b.spec().hidden, kResidual)),
                      "final_layer_norm");
}

ValueId encoder(Blocks& b, ValueId length) {
  const int64_t batch = b.size().batch, n = b.spec().source_seq;
  Builder& builder = b.builder();
  const ValueId places = builder.reshape(builder.iota({batch, n}, 1), {batch * n});
  ValueId x = embedded(b, builder.reshape(b.input("source"), {batch * n}), places);
  const ValueId ends = b.of_each_row(length, n);
  for (int64_t i = 0; i < b.layers("encoder"); ++i) {
    b.enter_layer("encoder", i, fmt::format("model.encoder.layers.{}.", i));
    x = attended(b, x, x, "self_attn", {.mask = AttentionMask::full, .key_ends = ends});
    x = feed_forward(b, x);
  }
  return x;
}

Outputs build(Blocks& b) {
  const ValueId length = b.input("source_length");
  const ValueId source = encoder(b, length);
  ValueId x = embedded(b, b.input("tokens"), b.input("positions"));
  const ValueId ends = b.of_each_row(length, b.size().seq);
  for (int64_t i = 0; i < b.layers("decoder"); ++i) {
    b.enter_layer("decoder", i, fmt::format("model.decoder.layers.{}.", i));
    x = attended(b, x, x, "self_attn", {});
    x = attended(b, x, source, "encoder_attn",
                 {.mask = AttentionMask::full, .key_ends = ends, .keys = AttentionKeys::fixed});
    x = feed_forward(b, x);
  }
  b.enter(-1, "");
  return {b.fixed_bias(b.head(x, "model.shared.weight"), "final_logits_bias")};
}

}  // namespace

constinit const ModelDef kMarian = {.kind = ModelKind::marian,
                                    .name = "marian",
                                    .architecture = "MarianMTModel",
                                    .prefix = "model.",
                                    .positions = Positions::sinusoidal,
                                    .mlp = MlpKind::chosen,
                                    .grouped_heads = false,
                                    .hf_keys = kKeys,
                                    .own_hf_keys = {},
                                    .hf_neutrals = kNeutrals,
                                    .hf_followers = followers,
                                    .build = build,
                                    .inputs = source_inputs,
                                    .stacks = encoder_and_decoder,
                                    .writes_text = false,
                                    .translates = true,
                                    .head_prefixes = kHeadNames,
                                    .skips = skips};

}  // namespace octet
