#include "backends/cuda/params/loss.h"

#include "backends/cuda/target/bind/binding.h"
#include "backends/cuda/target/choose/loss.h"

namespace octet::cuda {
namespace {

bool lookup_applies(const NodeView& view) {
  return is_high_precision(view.in(Lookup::table).dtype) &&
         is_high_precision(view.out(Lookup::y).dtype);
}

EmbeddingParams embedding_params(const NodeView& view, const TensorType& table) {
  EmbeddingParams p;
  p.tokens = view.in(Lookup::index).n_elems();
  p.vocabulary = table.shape[0];
  p.cols = p.vocabulary == 0 ? 0 : table.n_elems() / p.vocabulary;
  p.from = view.in(Lookup::table).dtype;
  p.to = view.out(Lookup::y).dtype;
  return p;
}
KernelSpec embedding_spec(const NodeView& view) {
  const EmbeddingParams p = embedding_params(view, view.in(Lookup::table));
  return launching(make_spec(KernelId::embedding, p), launches_of(Direction::forward, p));
}
EmbeddingParams embedding_grad_params(const NodeView& view) {
  return embedding_params(view, view.out(LookupGrad::dtable));
}
int64_t embedding_grad_scratch(const NodeView& view) {
  const EmbeddingParams p = embedding_grad_params(view);
  return embedding_grad_scratch_bytes(p.tokens, p.cols);
}
KernelSpec embedding_grad_spec(const NodeView& view) {
  const EmbeddingParams p = embedding_grad_params(view);
  return launching(make_spec(KernelId::embedding_grad, p), launches_of(Direction::backward, p));
}

CrossEntropyParams cross_entropy_params(const NodeView& view, const TensorType& logits,
                                        const TensorType& dlogits) {
  CrossEntropyParams p;
  p.rows = logits.shape[0];
  p.classes = logits.shape[1];
  p.logits = logits.dtype;
  p.dlogits = dlogits.dtype;
  p.smoothing = static_cast<float>(view.attrs<CrossEntropyAttrs>().smoothing);
  return p;
}
bool cross_entropy_applies(const NodeView& view) {
  return is_high_precision(view.in(CrossEntropy::logits).dtype) &&
         view.in_is(CrossEntropy::inv_n, {Dtype::f32});
}
KernelSpec cross_entropy_spec(const NodeView& view) {
  const TensorType& logits = view.in(CrossEntropy::logits);
  const CrossEntropyParams p = cross_entropy_params(view, logits, logits);
  return launching(make_spec(KernelId::cross_entropy, p), launches_of(Direction::forward, p));
}
int64_t cross_entropy_scratch(const NodeView& view) {
  return cross_entropy_scratch_bytes(view.in(CrossEntropy::logits).shape[0],
                                     static_cast<float>(view.attrs<CrossEntropyAttrs>().smoothing));
}
bool cross_entropy_grad_applies(const NodeView& view) {
  using G = CrossEntropyGrad;
  return is_high_precision(view.in(G::logits).dtype) &&
         is_high_precision(view.out(G::dlogits).dtype) && view.in_is(G::dloss, {Dtype::f32}) &&
         view.in_is(G::lse, {Dtype::f32}) && view.in_is(G::inv_n, {Dtype::f32});
}
KernelSpec cross_entropy_grad_spec(const NodeView& view) {
  using G = CrossEntropyGrad;
  CrossEntropyParams p = cross_entropy_params(view, view.in(G::logits), view.out(G::dlogits));
  p.dloss_stride = view.in(G::dloss).shape.empty() ? 0 : 1;
  return launching(make_spec(KernelId::cross_entropy_grad, p), launches_of(Direction::backward, p));
}

const Binding kLossBindings[] = {
    {{OpCode::embedding, "rows", lookup_applies}, embedding_spec},
    {{OpCode::embedding_grad, "rows", lookup_applies, embedding_grad_scratch}, embedding_grad_spec},
    {{OpCode::gather, "rows", lookup_applies}, embedding_spec},
    {{OpCode::scatter_add, "rows", lookup_applies, embedding_grad_scratch}, embedding_grad_spec},
    {{OpCode::cross_entropy, "rows", cross_entropy_applies, cross_entropy_scratch},
     cross_entropy_spec},
    {{OpCode::cross_entropy_grad, "rows", cross_entropy_grad_applies}, cross_entropy_grad_spec},
};

}  // namespace

std::span<const Binding> loss_bindings() {
  return kLossBindings;
}

}  // namespace octet::cuda
