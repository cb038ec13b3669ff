#include "backends/cpu/attention.h"
#include "backends/cpu/bind/launch.h"
#include "backends/cpu/cross_entropy.h"
#include "backends/cpu/embedding.h"
#include "backends/cpu/norm.h"
#include "backends/cpu/reduce.h"
#include "backends/cpu/rope.h"
#include "ir/ops/rope.h"

namespace octet::cpu {
namespace {

RowShape rows_of(const TensorType& x) {
  return {.rows = x.shape[0], .cols = x.shape[1]};
}

bool plain_norm(const NodeView& view) {
  return all_wide(view) && view.attrs<NormAttrs>().group == 0;
}

LaunchFn prepare_rms_norm(const NodeView& view, Context& context) {
  const auto eps = static_cast<float>(view.attrs<NormAttrs>().eps);
  return [types = NodeTypes(view), shape = rows_of(view.in(0)), eps,
          &pool = context.pool](const LaunchArgs& args) {
    rms_norm({.x = types.operand(args, 0),
              .weight = types.operand(args, 1),
              .y = types.result(args, 0),
              .rstd = data_out<float>(args, 1),
              .eps = eps},
             shape, pool);
  };
}

int64_t rms_grad_scratch(const NodeView& view, int) {
  return view.has(3)
             ? norm_backward_scratch(rows_of(view.in(1)), 1) * static_cast<int64_t>(sizeof(float))
             : 0;
}

LaunchFn prepare_rms_norm_grad(const NodeView& view, Context& context) {
  return with_amax_sink(view, [types = NodeTypes(view), shape = rows_of(view.in(1)),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    rms_norm_backward({.x = types.operand(args, 1),
                       .weight = types.operand(args, 3),
                       .dy = types.operand(args, 0),
                       .residual = types.operand(args, 5),
                       .rstd = data<float>(args, 2),
                       .dx = types.result(args, 0),
                       .dw = types.result(args, 1),
                       .scratch = reinterpret_cast<float*>(args.scratch),
                       .groups = {},
                       .amax = amax},
                      shape, pool);
  });
}

LaunchFn prepare_layer_norm(const NodeView& view, Context& context) {
  const auto eps = static_cast<float>(view.attrs<NormAttrs>().eps);
  return [types = NodeTypes(view), shape = rows_of(view.in(0)), eps,
          &pool = context.pool](const LaunchArgs& args) {
    layer_norm({.x = types.operand(args, 0),
                .weight = types.operand(args, 1),
                .bias = types.operand(args, 2),
                .y = types.result(args, 0),
                .mean = data_out<float>(args, 1),
                .rstd = data_out<float>(args, 2),
                .eps = eps},
               shape, pool);
  };
}

int64_t layer_grad_scratch(const NodeView& view, int) {
  return view.has(4)
             ? norm_backward_scratch(rows_of(view.in(1)), 2) * static_cast<int64_t>(sizeof(float))
             : 0;
}

LaunchFn prepare_layer_norm_grad(const NodeView& view, Context& context) {
  return with_amax_sink(view, [types = NodeTypes(view), shape = rows_of(view.in(1)),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    layer_norm_backward({.x = types.operand(args, 1),
                         .weight = types.operand(args, 4),
                         .dy = types.operand(args, 0),
                         .residual = types.operand(args, 6),
                         .mean = data<float>(args, 2),
                         .rstd = data<float>(args, 3),
                         .dx = types.result(args, 0),
                         .dw = types.result(args, 1),
                         .db = types.result(args, 2),
                         .scratch = reinterpret_cast<float*>(args.scratch),
                         .groups = {},
                         .amax = amax},
                        shape, pool);
  });
}

bool rope_applies(const NodeView& view) {
  return is_wide(view.in(0).dtype) && is_wide(view.out(0).dtype) &&
         view.attrs<RopeAttrs>().head_dim % 2 == 0;
}

LaunchFn prepare_rope(const NodeView& view, Context& context) {
  const auto& attrs = view.attrs<RopeAttrs>();
  const int64_t tokens = view.in(0).shape[0];
  const RopeShape shape{
      .tokens = tokens, .heads = attrs.heads, .head_size = attrs.head_dim, .max_positions = tokens};
  const Rotation rotation = attrs.inverse ? Rotation::inverse : Rotation::forward;
  return with_amax_sink(
      view, [types = NodeTypes(view), shape, rotation,
             table = context.rope_tables.get(attrs, tokens), frequencies = rope_frequencies(attrs),
             &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
        octet::cpu::rope({.x = types.operand(args, 0),
                          .y = types.result(args, 0),
                          .cos = table->cos.data(),
                          .sin = table->sin.data(),
                          .positions = data<int32_t>(args, 1),
                          .x_stride = 0,
                          .y_stride = 0,
                          .rotation = rotation,
                          .amax = amax,
                          .frequencies = frequencies.data()},
                         shape, pool);
      });
}

AttentionSpec attention_spec(const NodeView& view) {
  const auto& attrs = view.attrs<AttentionAttrs>();
  AttentionSpec spec;
  spec.batch = attrs.batch;
  spec.q_len = spec.kv_len = attrs.seq;
  spec.heads = attrs.heads;
  spec.kv_heads = attrs.kv_heads;
  spec.head_size = attrs.head_dim;
  spec.mask = attrs.causal ? AttentionMask::causal : AttentionMask::none;
  spec.scale = static_cast<float>(attrs.scale);
  spec.dtype = view.in(0).dtype;
  return spec;
}

// q, k, v and what has their shape are of one type; log-sum-exp is f32.
bool attention_applies(const NodeView& view) {
  const bool gradient = view.node.op == OpCode::attention_grad;
  const Dtype dtype = view.in(0).dtype;
  bool same = is_wide(dtype) && view.out(0).dtype == dtype;
  for (size_t i = 0; i < (gradient ? 5u : 3u); ++i) same = same && view.in(i).dtype == dtype;
  if (gradient) return same && view.out(1).dtype == dtype && view.out(2).dtype == dtype;
  return same;
}

int64_t attention_scratch(const NodeView& view, int n_threads) {
  return static_cast<int64_t>(AttentionForward(attention_spec(view), n_threads).scratch_bytes());
}
int64_t attention_grad_scratch(const NodeView& view, int n_threads) {
  return static_cast<int64_t>(AttentionBackward(attention_spec(view), n_threads).scratch_bytes());
}

LaunchFn prepare_attention(const NodeView& view, Context& context) {
  const auto kernel =
      std::make_shared<AttentionForward>(attention_spec(view), context.pool.n_threads());
  return [kernel, &pool = context.pool](const LaunchArgs& args) {
    kernel->launch({.q = {args.operands[0]},
                    .k = {args.operands[1]},
                    .v = {args.operands[2]},
                    .o = {args.results[0]},
                    .lse = data_out<float>(args, 1),
                    .scratch = args.scratch},
                   pool);
  };
}

LaunchFn prepare_attention_grad(const NodeView& view, Context& context) {
  const auto kernel =
      std::make_shared<AttentionBackward>(attention_spec(view), context.pool.n_threads());
  return [kernel, &pool = context.pool](const LaunchArgs& args) {
    kernel->launch({.q = {args.operands[1]},
                    .k = {args.operands[2]},
                    .v = {args.operands[3]},
                    .o = {args.operands[4]},
                    .dout = {args.operands[0]},
                    .lse = data<float>(args, 5),
                    .dq = {args.results[0]},
                    .dk = {args.results[1]},
                    .dv = {args.results[2]},
                    .scratch = args.scratch},
                   pool);
  };
}

bool table_is_wide(const NodeView& view) {
  return is_wide(view.in(0).dtype) && is_wide(view.out(0).dtype);
}

LaunchFn prepare_embedding(const NodeView& view, Context& context) {
  const EmbeddingShape shape{.tokens = view.in(1).n_elems(),
                             .vocabulary = view.in(0).shape[0],
                             .cols = view.in(0).shape[1]};
  return [types = NodeTypes(view), shape, &pool = context.pool](const LaunchArgs& args) {
    octet::cpu::embedding(types.operand(args, 0), data<int32_t>(args, 1), types.result(args, 0),
                          shape, pool);
  };
}

EmbeddingShape gradient_shape(const NodeView& view) {
  return {.tokens = view.in(1).n_elems(),
          .vocabulary = view.out(0).shape[0],
          .cols = view.out(0).shape[1]};
}

int64_t embedding_grad_scratch(const NodeView& view, int) {
  return embedding_backward_scratch(gradient_shape(view)) * static_cast<int64_t>(sizeof(int32_t));
}

LaunchFn prepare_embedding_grad(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), shape = gradient_shape(view),
          &pool = context.pool](const LaunchArgs& args) {
    embedding_backward({.dy = types.operand(args, 0),
                        .ids = data<int32_t>(args, 1),
                        .dtable = types.result(args, 0),
                        .accumulate = Accumulate::no,
                        .scratch = reinterpret_cast<int32_t*>(args.scratch)},
                       shape, pool);
  };
}

int64_t cross_entropy_scratch(const NodeView& view, int) {
  return reduce_scratch(view.in(0).shape[0]) * static_cast<int64_t>(sizeof(double));
}

LaunchFn prepare_cross_entropy(const NodeView& view, Context& context) {
  const CrossEntropyShape shape{.rows = view.in(0).shape[0], .classes = view.in(0).shape[1]};
  return [types = NodeTypes(view), shape, &pool = context.pool](const LaunchArgs& args) {
    auto* nll = data_out<float>(args, 2);
    cross_entropy({.logits = types.operand(args, 0),
                   .labels = data<int32_t>(args, 1),
                   .loss = nll,
                   .lse = data_out<float>(args, 1)},
                  shape, pool);
    const double total =
        sum({nll, Dtype::f32}, shape.rows, reinterpret_cast<double*>(args.scratch), pool);
    *data_out<float>(args, 0) =
        static_cast<float>(total * static_cast<double>(*data<float>(args, 2)));
  };
}

LaunchFn prepare_cross_entropy_grad(const NodeView& view, Context& context) {
  const CrossEntropyShape shape{.rows = view.in(1).shape[0], .classes = view.in(1).shape[1]};
  return [types = NodeTypes(view), shape, &pool = context.pool](const LaunchArgs& args) {
    cross_entropy_backward({.logits = types.operand(args, 1),
                            .labels = data<int32_t>(args, 2),
                            .lse = data<float>(args, 3),
                            .dlogits = types.result(args, 0),
                            .inv_n = data<float>(args, 4),
                            .dloss = data<float>(args, 0),
                            .row_dloss = nullptr},
                           shape, pool);
  };
}

const Binding kBindings[] = {
    {OpCode::rms_norm, plain_norm, nullptr, prepare_rms_norm},
    {OpCode::rms_norm_grad, plain_norm, rms_grad_scratch, prepare_rms_norm_grad},
    {OpCode::layer_norm, plain_norm, nullptr, prepare_layer_norm},
    {OpCode::layer_norm_grad, plain_norm, layer_grad_scratch, prepare_layer_norm_grad},
    {OpCode::rope, rope_applies, nullptr, prepare_rope},
    {OpCode::attention, attention_applies, attention_scratch, prepare_attention},
    {OpCode::attention_grad, attention_applies, attention_grad_scratch, prepare_attention_grad},
    {OpCode::embedding, table_is_wide, nullptr, prepare_embedding},
    {OpCode::embedding_grad, table_is_wide, embedding_grad_scratch, prepare_embedding_grad},
    {OpCode::cross_entropy, table_is_wide, cross_entropy_scratch, prepare_cross_entropy},
    {OpCode::cross_entropy_grad,
     [](const NodeView& v) { return is_wide(v.in(1).dtype) && is_wide(v.out(0).dtype); }, nullptr,
     prepare_cross_entropy_grad},
};

}  // namespace

std::span<const Binding> layer_bindings() {
  return kBindings;
}

}  // namespace octet::cpu
