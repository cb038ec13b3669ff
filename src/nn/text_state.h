// What a recurrence leaves of the tokens before, as a state beside a KV cache (BatchSize::cache): a
// row of the batch is of one text, which position 0 begins anew, and tokens at position -1 do not
// count. In single precision under every recipe.
#pragma once

#include <string_view>

#include "nn/blocks.h"

namespace octet {

class TextState {
 public:
  // Of the layer that was entered; `what` as ir/caches.h lists it, `shape`: [batch, ...]. Throws
  // Error{invalid_argument} with isolated documents.
  TextState(Blocks& blocks, std::string_view what, Shape shape);

  // The state that the call's first token finds: zeros of texts that begin anew.
  ValueId first();
  // [batch, T]: 1 of tokens that count, 0 of others.
  ValueId counts();
  // The state behind the last token that counts.
  void next(ValueId value);

 private:
  ValueId index(const Shape& shape, int64_t value);

  Builder& b_;
  int64_t batch_, seq_;
  ValueId held_ = kNoValue, positions_ = kNoValue;
};

}  // namespace octet
