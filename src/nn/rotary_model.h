// Decoders of Llama's kin, and their ModelDef.
#pragma once

#include <span>
#include <string_view>

#include "nn/blocks.h"
#include "nn/hf_keys.h"
#include "nn/list.h"

namespace octet {

// Where the norms of a layer's attention and MLP stand: on what they read, or on what they add.
enum class NormPlace : uint8_t { before, after };
// Norms of queries and keys before their rotation: none, of each head, or over the projection.
enum class QkNorm : uint8_t { none, head, projection };

using NormBlock = ValueId (Blocks::*)(ValueId x, std::string_view path);

// A decoder of rotary attention and gated MLPs up to its logits: what Llama and its kin are.
struct RotaryDecoder {
  NormBlock norm = &Blocks::rms_norm;
  NormPlace place = NormPlace::before;
  QkNorm qk_norm = QkNorm::none;
  WithBias qkv_bias = WithBias::no;  // besides the field attention_bias, which is of all four
};
ValueId rotary_decoder(Blocks& blocks, const RotaryDecoder& decoder = {});

// `keys` of its config.json are its own (ModelDef::own_hf_keys); kDecoder says where it differs
// from Llama.
template <RotaryDecoder kDecoder = RotaryDecoder{}>
constexpr ModelDef rotary_model(ModelKind kind, std::string_view name,
                                std::string_view architecture, std::span<const HfKey> keys) {
  return {.kind = kind,
          .name = name,
          .architecture = architecture,
          .prefix = "model.",
          .hf_keys = kRotaryKeys,
          .own_hf_keys = keys,
          .hf_neutrals = kGatedNeutrals,
          .logits = [](Blocks& blocks) { return rotary_decoder(blocks, kDecoder); }};
}

}  // namespace octet
