#include "nn/text_state.h"

#include <utility>

#include "base/error.h"
#include "ir/caches.h"

namespace octet {

TextState::TextState(Blocks& blocks, std::string_view what, Shape shape)
    : b_(blocks.builder()), batch_(blocks.size().batch), seq_(blocks.size().seq) {
  if (blocks.input_or_none("doc_starts") != kNoValue) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected rows of one text each over a KV cache, got isolated documents");
  }
  const std::string owner = cache_owner(b_.tag.layer, what, batch_, blocks.size().cache);
  held_ = b_.state(StateUse::kv_cache, owner, real_type(std::move(shape)));
  positions_ = b_.reshape(blocks.input("positions"), {batch_, seq_});
}

ValueId TextState::first() {
  const ValueId place = b_.reshape(b_.slice(positions_, 1, 0, 1), {batch_});
  const ValueId begins = b_.equal(place, index({batch_}, 0));
  const ValueId zeros = b_.fill_like(held_, 0);
  return b_.select(b_.broadcast(begins, b_.shape(held_), {0}), zeros, held_);
}

ValueId TextState::counts() {
  const Shape shape{batch_, seq_};
  const ValueId none = b_.fill(shape, 0), one = b_.fill(shape, 1);
  return b_.select(b_.less(positions_, index(shape, 0)), none, one);
}

void TextState::next(ValueId value) {
  b_.next(held_, value);
}

// The same integer everywhere.
ValueId TextState::index(const Shape& shape, int64_t value) {
  Shape wide = shape;
  wide.push_back(value + 1);
  const auto axis = static_cast<int64_t>(shape.size());
  return b_.reshape(b_.slice(b_.iota(wide, axis), axis, value, 1), shape);
}

}  // namespace octet
