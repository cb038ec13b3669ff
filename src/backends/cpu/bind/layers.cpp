#include "backends/cpu/attention/attention.h"
#include "backends/cpu/attention/gated_delta.h"
#include "backends/cpu/bind/codes.h"
#include "backends/cpu/bind/launch.h"
#include "backends/cpu/elementwise/reduce.h"
#include "backends/cpu/loss/cross_entropy.h"
#include "backends/cpu/loss/embedding.h"
#include "backends/cpu/rope/rope.h"

namespace octet::cpu {
namespace {

bool rope_applies(const NodeView& view) {
  return is_f32_or_bf16(view.in(octet::Rope::x).dtype) &&
         is_f32_or_bf16(view.out(octet::Rope::y).dtype) &&
         view.attrs<RopeAttrs>().head_dim % 2 == 0;
}

LaunchFn prepare_rope(const NodeView& view, Context& context) {
  const auto& attrs = view.attrs<RopeAttrs>();
  const int64_t tokens = view.in(octet::Rope::x).shape[0];
  const RopeShape shape{
      .tokens = tokens, .heads = attrs.heads, .head_size = attrs.head_dim, .max_positions = tokens};
  const Rotation rotation = attrs.inverse ? Rotation::inverse : Rotation::forward;
  return launcher(
      view, context,
      [shape, rotation, table = context.rope_tables.get(attrs, tokens)](const Call& call) {
        octet::cpu::rope({.x = call.in(octet::Rope::x),
                          .y = call.out(octet::Rope::y),
                          .cos = table->cos.data(),
                          .sin = table->sin.data(),
                          .positions = call.data<int32_t>(octet::Rope::positions),
                          .rotation = rotation,
                          .amax = call.amax,
                          .frequencies = table->frequencies.data()},
                         shape, call.pool);
      });
}

AttentionSpec attention_spec(const NodeView& view) {
  const auto& attrs = view.attrs<AttentionAttrs>();
  AttentionSpec spec;
  spec.batch = attrs.batch;
  spec.q_len = attrs.q_len;
  spec.kv_len = attrs.kv_len;
  spec.heads = attrs.heads;
  spec.kv_heads = attrs.kv_heads;
  spec.head_size = attrs.head_dim;
  spec.mask = attrs.mask;
  spec.window = attrs.window;
  spec.scale = static_cast<float>(attrs.scale);
  spec.softcap = static_cast<float>(attrs.softcap);
  spec.dtype = view.out(0).dtype;
  const AttentionSlots slots = attention_slots(view);
  if (view.has(slots.key_begins) || view.has(slots.key_ends)) spec.ranges = KeyRanges::given;
  if (view.has(slots.bias)) {
    const TensorType& bias = view.in(slots.bias);
    spec.bias = {.batch = bias.shape[0],
                 .heads = bias.shape[1],
                 .q_len = bias.shape[2],
                 .dtype = bias.dtype,
                 .gradient = attrs.bias_gradient ? BiasGradient::yes : BiasGradient::no};
  }
  return spec;
}

// q, k, v and what has their shape are of one type; log-sum-exp is f32; a bias and its gradient are
// of one type, and scores with a bias are not capped.
bool attention_applies(const NodeView& view) {
  const auto& attrs = view.attrs<AttentionAttrs>();
  const auto dtype = attention_dtype(view);
  if (!dtype || !is_f32_or_bf16(*dtype) || !(attrs.scale > 0)) return false;
  const SlotId slot = attention_slots(view).bias;
  if (!view.has(slot)) return true;
  if (attrs.softcap > 0) return false;
  const Dtype bias = view.in(slot).dtype;
  return is_f32_or_bf16(bias) &&
         (!attrs.bias_gradient || view.out(AttentionGrad::dbias).dtype == bias);
}

int64_t attention_scratch(const NodeView& view) {
  return static_cast<int64_t>(
      AttentionForward(attention_spec(view), view.target.n_threads).scratch_bytes());
}
int64_t attention_grad_scratch(const NodeView& view) {
  return static_cast<int64_t>(
      AttentionBackward(attention_spec(view), view.target.n_threads).scratch_bytes());
}

LaunchFn prepare_attention(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [kernel = AttentionForward(attention_spec(view), context.pool.n_threads())](
                      const Call& call) {
                    kernel.launch({.q = call.args.operands[Attention::q],
                                   .k = call.args.operands[Attention::k],
                                   .v = call.args.operands[Attention::v],
                                   .o = call.args.results[Attention::o],
                                   .lse = call.result<float>(Attention::lse),
                                   .key_begins = call.data<int32_t>(Attention::key_begins),
                                   .key_ends = call.data<int32_t>(Attention::key_ends),
                                   .positions = call.data<int32_t>(Attention::positions),
                                   .bias = call.data<void>(Attention::bias),
                                   .scratch = call.args.scratch},
                                  call.pool);
                  });
}

LaunchFn prepare_attention_grad(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [kernel = AttentionBackward(attention_spec(view), context.pool.n_threads())](
                      const Call& call) {
                    kernel.launch({.q = call.args.operands[AttentionGrad::q],
                                   .k = call.args.operands[AttentionGrad::k],
                                   .v = call.args.operands[AttentionGrad::v],
                                   .o = call.args.operands[AttentionGrad::o],
                                   .dout = call.args.operands[AttentionGrad::dout],
                                   .lse = call.data<float>(AttentionGrad::lse),
                                   .key_begins = call.data<int32_t>(AttentionGrad::key_begins),
                                   .key_ends = call.data<int32_t>(AttentionGrad::key_ends),
                                   .bias = call.data<void>(AttentionGrad::bias),
                                   .dq = call.args.results[AttentionGrad::dq],
                                   .dk = call.args.results[AttentionGrad::dk],
                                   .dv = call.args.results[AttentionGrad::dv],
                                   .dbias = call.result<void>(AttentionGrad::dbias),
                                   .scratch = call.args.scratch},
                                  call.pool);
                  });
}

// kFirst: the slot of q, which those of GatedDelta follow.
template <SlotId kFirst>
GatedDeltaShape delta_shape(const NodeView& view) {
  const auto& attrs = view.attrs<GatedDeltaAttrs>();
  const Shape& q = view.in(kFirst + octet::GatedDelta::q).shape;
  const int64_t heads = view.in(kFirst + octet::GatedDelta::beta).shape[1];
  return {.batch = attrs.batch,
          .seq = q[0] / attrs.batch,
          .key_heads = attrs.key_heads,
          .heads = heads,
          .key_dim = q[1] / attrs.key_heads,
          .value_dim = view.in(kFirst + octet::GatedDelta::v).shape[1] / heads};
}
template <SlotId kFirst>
bool delta_applies(const NodeView& view) {
  bool fits = true;
  for (SlotId i = 0; i < view.node.operands.size(); ++i) {
    const bool is_float = i != kFirst + octet::GatedDelta::doc_starts;
    if (is_float && view.has(i)) fits = fits && is_f32_or_bf16(view.in(i).dtype);
  }
  for (SlotId i = 0; i < view.node.results.size(); ++i) {
    if (view.gives(i)) fits = fits && is_f32_or_bf16(view.out(i).dtype);
  }
  return fits;
}
int64_t delta_scratch(const NodeView& view) {
  return float_bytes(
      gated_delta_floats(delta_shape<octet::GatedDelta::q>(view), view.target.n_threads));
}
int64_t delta_grad_scratch(const NodeView& view) {
  return float_bytes(
      gated_delta_grad_floats(delta_shape<GatedDeltaGrad::q>(view), view.target.n_threads));
}

GatedDeltaCall delta_call(const Call& call, SlotId first) {
  using Op = octet::GatedDelta;
  return {.q = call.in(first + Op::q),
          .k = call.in(first + Op::k),
          .v = call.in(first + Op::v),
          .log_decay = call.in(first + Op::log_decay),
          .beta = call.in(first + Op::beta),
          .doc_starts = call.data<int32_t>(first + Op::doc_starts),
          .scratch = call.scratch<float>()};
}
LaunchFn prepare_delta(const NodeView& view, Context& context) {
  using Op = octet::GatedDelta;
  return launcher(view, context, [shape = delta_shape<Op::q>(view)](const Call& call) {
    GatedDeltaCall delta = delta_call(call, Op::q);
    delta.state = call.in(Op::state);
    delta.o = call.out(Op::o), delta.next_state = call.out(Op::next_state);
    gated_delta(shape, delta, call.pool);
  });
}
LaunchFn prepare_delta_grad(const NodeView& view, Context& context) {
  using Op = GatedDeltaGrad;
  return launcher(view, context, [shape = delta_shape<Op::q>(view)](const Call& call) {
    gated_delta_gradient(shape,
                         {.forward = delta_call(call, Op::q),
                          .dout = call.in(Op::dout),
                          .dq = call.out(Op::dq),
                          .dk = call.out(Op::dk),
                          .dv = call.out(Op::dv),
                          .dlog_decay = call.out(Op::dlog_decay),
                          .dbeta = call.out(Op::dbeta)},
                         call.pool);
  });
}

// Tables of a look-up, its gradient and the loss.
bool table_is_f32_or_bf16(const NodeView& view) {
  return is_f32_or_bf16(view.in(Lookup::table).dtype) && is_f32_or_bf16(view.out(Lookup::y).dtype);
}
bool logits_are_f32_or_bf16(const NodeView& view) {
  return is_f32_or_bf16(view.in(CrossEntropyGrad::logits).dtype) &&
         view.in(CrossEntropyGrad::dloss).dtype == Dtype::f32 &&
         is_f32_or_bf16(view.out(CrossEntropyGrad::dlogits).dtype);
}

LaunchFn prepare_embedding(const NodeView& view, Context& context) {
  const EmbeddingShape shape{.tokens = view.in(Lookup::index).n_elems(),
                             .vocabulary = view.in(Lookup::table).shape[0],
                             .cols = view.in(Lookup::table).shape[1]};
  return launcher(view, context, [shape](const Call& call) {
    octet::cpu::embedding(call.in(Lookup::table), call.data<int32_t>(Lookup::index),
                          call.out(Lookup::y), shape, call.pool);
  });
}

EmbeddingShape gradient_shape(const NodeView& view) {
  return {.tokens = view.in(LookupGrad::index).n_elems(),
          .vocabulary = view.out(LookupGrad::dtable).shape[0],
          .cols = view.out(LookupGrad::dtable).shape[1]};
}

int64_t embedding_grad_scratch(const NodeView& view) {
  return embedding_backward_scratch(gradient_shape(view)) * static_cast<int64_t>(sizeof(int32_t));
}

LaunchFn prepare_embedding_grad(const NodeView& view, Context& context) {
  return launcher(view, context, [shape = gradient_shape(view)](const Call& call) {
    embedding_backward({.dy = call.in(LookupGrad::dy),
                        .ids = call.data<int32_t>(LookupGrad::index),
                        .dtable = call.out(LookupGrad::dtable),
                        .scratch = call.scratch<int32_t>()},
                       shape, call.pool);
  });
}

CrossEntropyShape cross_entropy_shape(const NodeView& view, SlotId logits) {
  return {.rows = view.in(logits).shape[0],
          .classes = view.in(logits).shape[1],
          .smoothing = static_cast<float>(view.attrs<CrossEntropyAttrs>().smoothing)};
}

// Sums of blocks, then the smoothed loss of each row.
int64_t cross_entropy_sums(int64_t rows) {
  return reduce_scratch(rows) * static_cast<int64_t>(sizeof(double));
}
int64_t cross_entropy_scratch(const NodeView& view) {
  const CrossEntropyShape shape = cross_entropy_shape(view, octet::CrossEntropy::logits);
  const int64_t smoothed = shape.smoothing == 0 ? 0 : shape.rows;
  return cross_entropy_sums(shape.rows) + smoothed * static_cast<int64_t>(sizeof(float));
}

LaunchFn prepare_cross_entropy(const NodeView& view, Context& context) {
  const CrossEntropyShape shape = cross_entropy_shape(view, octet::CrossEntropy::logits);
  return launcher(view, context, [shape](const Call& call) {
    auto* nll = call.result<float>(octet::CrossEntropy::nll);
    auto* smoothed = reinterpret_cast<float*>(call.args.scratch + cross_entropy_sums(shape.rows));
    cross_entropy({.logits = call.in(octet::CrossEntropy::logits),
                   .labels = call.data<int32_t>(octet::CrossEntropy::labels),
                   .loss = nll,
                   .lse = call.result<float>(octet::CrossEntropy::lse),
                   .smoothed = smoothed},
                  shape, call.pool);
    const double total = sum({shape.smoothing == 0 ? nll : smoothed, Dtype::f32}, shape.rows,
                             call.scratch<double>(), call.pool);
    *call.result<float>(octet::CrossEntropy::loss) = static_cast<float>(
        total * static_cast<double>(*call.data<float>(octet::CrossEntropy::inv_n)));
  });
}

LaunchFn prepare_cross_entropy_grad(const NodeView& view, Context& context) {
  const CrossEntropyShape shape = cross_entropy_shape(view, CrossEntropyGrad::logits);
  const bool by_row = !view.in(CrossEntropyGrad::dloss).shape.empty();
  return launcher(view, context, [shape, by_row](const Call& call) {
    const auto* dloss = call.data<float>(CrossEntropyGrad::dloss);
    cross_entropy_backward({.logits = call.in(CrossEntropyGrad::logits),
                            .labels = call.data<int32_t>(CrossEntropyGrad::labels),
                            .lse = call.data<float>(CrossEntropyGrad::lse),
                            .dlogits = call.out(CrossEntropyGrad::dlogits),
                            .inv_n = call.data<float>(CrossEntropyGrad::inv_n),
                            .dloss = by_row ? nullptr : dloss,
                            .row_dloss = by_row ? dloss : nullptr},
                           shape, call.pool);
  });
}

const Binding kLayersBindings[] = {
    {{OpCode::rope, "simd", rope_applies}, prepare_rope},
    {{OpCode::attention, "simd", attention_applies, attention_scratch}, prepare_attention},
    {{OpCode::attention_grad, "simd", attention_applies, attention_grad_scratch},
     prepare_attention_grad},
    {{OpCode::gated_delta, "chunks", delta_applies<octet::GatedDelta::q>, delta_scratch},
     prepare_delta},
    {{OpCode::gated_delta_grad, "chunks", delta_applies<GatedDeltaGrad::q>, delta_grad_scratch},
     prepare_delta_grad},
    {{OpCode::embedding, "simd", table_is_f32_or_bf16}, prepare_embedding},
    {{OpCode::embedding_grad, "simd", table_is_f32_or_bf16, embedding_grad_scratch},
     prepare_embedding_grad},
    {{OpCode::cross_entropy, "simd", table_is_f32_or_bf16, cross_entropy_scratch},
     prepare_cross_entropy},
    {{OpCode::cross_entropy_grad, "simd", logits_are_f32_or_bf16}, prepare_cross_entropy_grad},
};

}  // namespace

std::span<const Binding> layer_bindings() {
  return kLayersBindings;
}

}  // namespace octet::cpu
