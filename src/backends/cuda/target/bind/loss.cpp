#include "backends/cuda/params/loss.h"

#include "backends/cuda/target/bind/binding.h"

namespace octet::cuda {
namespace {

bool lookup_applies(const NodeView& view) {
  return is_wide_or_half(view.in(0).dtype) && is_wide_or_half(view.out(0).dtype);
}

// The table is the operand of the look-up, and the result of its gradient.
EmbeddingParams embedding_params(const NodeView& view) {
  const bool gradient = view.node.op == OpCode::embedding_grad;
  const Shape& table = (gradient ? view.out(0) : view.in(0)).shape;
  EmbeddingParams p;
  p.tokens = view.in(1).n_elems();
  p.vocabulary = table[0];
  p.cols = table[1];
  p.from = view.in(0).dtype;
  p.to = view.out(0).dtype;
  return p;
}
KernelSpec embedding_spec(const NodeView& view) {
  return make_spec(KernelId::embedding, embedding_params(view));
}
int64_t embedding_grad_scratch(const NodeView& view) {
  const EmbeddingParams p = embedding_params(view);
  return embedding_grad_scratch_bytes(p.tokens, p.cols);
}
KernelSpec embedding_grad_spec(const NodeView& view) {
  return make_spec(KernelId::embedding_grad, embedding_params(view));
}

CrossEntropyParams cross_entropy_params(const NodeView& view) {
  const bool gradient = view.node.op == OpCode::cross_entropy_grad;
  const TensorType& logits = view.in(gradient ? 1 : 0);
  CrossEntropyParams p;
  p.rows = logits.shape[0];
  p.classes = logits.shape[1];
  p.logits = logits.dtype;
  p.dlogits = gradient ? view.out(0).dtype : p.logits;
  return p;
}
bool cross_entropy_applies(const NodeView& view) {
  return is_wide_or_half(view.in(0).dtype) && view.in_is(2, {Dtype::f32});
}
KernelSpec cross_entropy_spec(const NodeView& view) {
  return make_spec(KernelId::cross_entropy, cross_entropy_params(view));
}
bool cross_entropy_grad_applies(const NodeView& view) {
  const CrossEntropyParams p = cross_entropy_params(view);
  return is_wide_or_half(p.logits) && is_wide_or_half(p.dlogits) && view.in_is(0, {Dtype::f32}) &&
         view.in_is(3, {Dtype::f32}) && view.in_is(4, {Dtype::f32});
}
KernelSpec cross_entropy_grad_spec(const NodeView& view) {
  return make_spec(KernelId::cross_entropy_grad, cross_entropy_params(view));
}

const Binding kBindings[] = {
    {OpCode::embedding, lookup_applies, nullptr, embedding_spec},
    {OpCode::embedding_grad, lookup_applies, embedding_grad_scratch, embedding_grad_spec},
    {OpCode::cross_entropy, cross_entropy_applies, nullptr, cross_entropy_spec},
    {OpCode::cross_entropy_grad, cross_entropy_grad_applies, nullptr, cross_entropy_grad_spec},
};

}  // namespace

std::span<const Binding> loss_bindings() {
  return kBindings;
}

}  // namespace octet::cuda
