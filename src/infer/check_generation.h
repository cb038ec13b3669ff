// Check that generation computes what training does: log-probabilities of prefill and decode over a
// KV cache against those of one forward pass, token by token, by the same loss.
//
// In fp32 and bf16 on the CPU they have equal bits. Where scales are measured over a batch they
// cannot: a decoded token is quantized with those beside it, not with those before it.
#pragma once

#include <cstdint>
#include <vector>

#include "data/token_stream.h"
#include "infer/inference.h"

namespace octet {

struct CheckSize {
  int64_t batch = 8, seq = 256;  // windows at a time; the first half of each is prefilled
  int64_t n_tokens = 10'000;     // predicted, at most
};

struct GenerationCheck {
  int64_t n_tokens = 0, n_equal = 0;     // equal: all bits
  double largest = 0;                    // difference, nats
  double forward_ms = 0, cached_ms = 0;  // of all tokens
};

std::vector<FunctionKey> check_functions(const CheckSize& size);
// `model` has check_functions(size).
GenerationCheck check_generation(Inference& model, const TokenStream& stream,
                                 const CheckSize& size);

}  // namespace octet
