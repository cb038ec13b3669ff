// Decoders of Llama's kin, and their ModelDef.
#pragma once

#include <span>
#include <string_view>

#include "nn/hf_keys.h"
#include "nn/list.h"
#include "nn/rotary_decoder.h"

namespace octet {

// `keys` and `neutrals` of its config.json are its own (ModelDef::own_hf_keys); kDecoder says where
// it differs from Llama.
template <RotaryDecoder kDecoder = RotaryDecoder{}>
constexpr ModelDef rotary_model(ModelKind kind, std::string_view name,
                                std::string_view architecture, std::span<const HfKey> keys,
                                std::span<const HfNeutral> neutrals = {}) {
  return {.kind = kind,
          .name = name,
          .architecture = architecture,
          .prefix = "model.",
          .mlp = kDecoder.mlp == MlpShape::plain ? MlpKind::gelu : MlpKind::gated,
          .hf_keys = kRotaryKeys,
          .own_hf_keys = keys,
          .hf_neutrals = neutrals,
          .logits = [](Blocks& blocks) { return rotary_decoder(blocks, kDecoder); }};
}

}  // namespace octet
