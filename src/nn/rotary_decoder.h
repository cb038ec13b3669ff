// A decoder of rotary attention and feed-forward blocks up to its logits: what Llama and its kin
// are.
#pragma once

#include "nn/blocks.h"

namespace octet {

// Places of the norms of a layer's attention and MLP: on what they read; on what they add; on both,
// by Gemma's or by GLM's names; or one norm on what both read, side by side.
enum class NormPlace : uint8_t { before, after, around, around_glm, shared };
// Norms of queries and keys before their rotation: none, of each head, or over the projection.
enum class QkNorm : uint8_t { none, head, projection };
// Linears that are one in the model, as in its files: gate and up; and queries, keys and values.
enum class Fused : uint8_t { none, gate_up, all };
// The bias of the projection behind attention: as those before it, by attention_out_bias, or none.
enum class OutBias : uint8_t { attention_bias, own, none };
enum class MlpShape : uint8_t { gated, plain };
// Factor of token embeddings: the spec's embedding_multiplier, or sqrt(hidden).
enum class EmbeddingFactor : uint8_t { field, sqrt_hidden };

struct RotaryDecoder {
  NormBlock norm = &Blocks::rms_norm;  // of queries and keys, too
  NormPlace place = NormPlace::before;
  QkNorm qk_norm = QkNorm::none;
  WithBias qkv_bias = WithBias::no;  // besides the field attention_bias
  OutBias out_bias = OutBias::attention_bias;
  RotaryPairs pairs = RotaryPairs::halves;
  Fused fused = Fused::none;
  MlpShape mlp = MlpShape::gated;
  EmbeddingFactor embedding = EmbeddingFactor::field;
};

// Attention and MLP of a layer that reads x and adds to it; the layer must have been entered.
ValueId rotary_layer(Blocks& blocks, ValueId x, const RotaryDecoder& decoder);
ValueId rotary_decoder(Blocks& blocks, const RotaryDecoder& decoder = {});

}  // namespace octet
