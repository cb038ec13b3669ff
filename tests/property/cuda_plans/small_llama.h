// A decoder of two layers, with sizes that all kernels take.
#pragma once

#include "nn/model.h"

namespace octet::test {

inline ModelSpec small_llama() {
  ModelSpec spec;
  spec.vocab = 256;
  spec.hidden = 128;
  spec.layers = 2;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.ffn = 256;
  return spec;
}

}  // namespace octet::test
