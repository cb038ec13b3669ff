// A second moment in FP16 that an update widens before and stores behind becomes an operand and a
// result of the update: no copy of it in f32 is written and read.
#include "ir/op_def.h"
#include "ir/ops/list.h"
#include "passes/lower/fuse_rules.h"

namespace octet {
namespace {

using S = AdamwStep;

// The only store of what the update makes of its second moment, with the scale that it was read
// with.
const Node* stored_again(const Matcher& m, const Node& adamw, ValueId scale) {
  const ValueId next = adamw.out(S::next_v);
  const Node* store = m.read_once(next) ? m.reader(next, OpCode::store_scaled) : nullptr;
  const bool fits = store != nullptr && store->in(StoreScaled::scale) == scale;
  return fits ? store : nullptr;
}

}  // namespace

std::optional<Match> match_scaled_moment(const Matcher& m, const Node& node) {
  auto attrs = std::get<AdamwAttrs>(node.attrs);
  const Node* wide = m.producer(node.in(S::v), OpCode::rescale);
  if (wide == nullptr || !m.read_once(node.in(S::v)) ||
      m.dtype(wide->in(Rescale::x)) != Dtype::fp16 || !is_quantized(m.dtype(node.in(S::m))))
    return std::nullopt;
  const Node* store = stored_again(m, node, wide->in(Rescale::factor));
  if (store == nullptr || attrs.stochastic_m || attrs.stochastic_v || attrs.stochastic_w)
    return std::nullopt;
  const auto& stored = std::get<StoreScaledAttrs>(store->attrs);
  if (!stored.keeps_positive || stored.first != attrs.first) return std::nullopt;
  attrs.stochastic_v = true;
  attrs.stream = stored.stream, attrs.seed = stored.seed;
  ValueIds operands = all_operands(node);
  operands[S::v] = wide->in(Rescale::x);
  operands[S::v_meta] = wide->in(Rescale::factor);
  operands[S::attempt] = store->in(StoreScaled::attempt);
  ValueIds replaced = node.results;
  replaced[S::next_v] = store->out(StoreScaled::q);
  return Match{.last = m.id(node),
               .op = node.op,
               .attrs = attrs,
               .operands = operands,
               .replaces = replaced,
               .tag = node.tag,
               .consumed = {m.id(*wide), m.id(*store)}};
}

}  // namespace octet
