// A product of unfolded windows, or one that is folded, with its unfold or its fold: a target that
// has a kernel for both makes the windows of a few pictures at a time.
#include "ir/op_def.h"
#include "passes/lower/fold.h"

namespace octet {

std::optional<Form> fold_windows(const Matcher& m, const Form& form) {
  if (form.op != OpCode::gemm || form.operands[Gemm::c] != kNoValue) return std::nullopt;
  const auto& gemm = std::get<GemmAttrs>(form.attrs);
  const ValueId a = form.operands[Gemm::a], b = form.operands[Gemm::b], y = form.results.front();
  if (gemm.fast_accumulate || gemm.tf32 || m.type(a).is_scaled() || m.type(b).is_scaled())
    return std::nullopt;
  const Node *unfolded_a = m.producer(a, OpCode::unfold),
             *unfolded_b = m.producer(b, OpCode::unfold);
  const Node* folded = m.read_once(y) ? m.reader(y, OpCode::fold) : nullptr;
  Form result = form;
  result.op = OpCode::convolution;
  const auto product_of = [&](const Node& windows, GemmRole role, ValueId first, ValueId second) {
    result.attrs = ConvolutionAttrs{std::get<UnfoldAttrs>(windows.attrs), role};
    result.operands = {first, second};
  };
  if (unfolded_a != nullptr && gemm.trans_b && !gemm.trans_a) {
    product_of(*unfolded_a, GemmRole::forward, unfolded_a->in(Unary::x), b);
  } else if (unfolded_b != nullptr && gemm.trans_a && !gemm.trans_b) {
    product_of(*unfolded_b, GemmRole::wgrad, a, unfolded_b->in(Unary::x));
  } else if (folded != nullptr && !gemm.trans_a && !gemm.trans_b) {
    product_of(*folded, GemmRole::dgrad, a, b);
    result.stand_at(m.id(*folded));
    result.results = {folded->out(Unary::y)};
  } else {
    return std::nullopt;
  }
  return m.takes(result) ? std::optional(result) : std::nullopt;
}

}  // namespace octet
