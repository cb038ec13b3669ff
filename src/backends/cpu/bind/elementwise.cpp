#include "backends/cpu/elementwise/elementwise.h"

#include "backends/cpu/bind/codes.h"
#include "backends/cpu/bind/launch.h"
#include "backends/cpu/norm/norm.h"
#include "backends/cpu/reference/reference.h"

namespace octet::cpu {

bool all_f32_or_bf16(const NodeView& view) {
  for (size_t i = 0; i < view.node.operands.size(); ++i) {
    if (view.has(i) && !is_f32_or_bf16(view.in(i).dtype)) return false;
  }
  for (size_t i = 0; i < own_results(view); ++i) {
    if (view.gives(i) && !is_f32_or_bf16(view.out(i).dtype)) return false;
  }
  return true;
}

namespace {

bool in_lanes(const NodeView& view) {
  return has_lanes(view.node.op) && all_f32_or_bf16(view);
}
LaunchFn prepare_lanes(const NodeView& view, Context& context) {
  return [op = view.node.op, types = NodeTypes(view), n = view.out(Binary::y).n_elems(),
          &pool = context.pool](const LaunchArgs& args) {
    elementwise({op, types.operand(args, Binary::a), types.operand(args, Binary::b),
                 types.result(args, Binary::y)},
                n, pool);
  };
}

// What no vectors compute: the reference's function of a piece at a time, with its bits.
bool in_doubles(const NodeView& view) {
  return !has_lanes(view.node.op);
}
LaunchFn prepare_doubles(const NodeView& view, Context& context) {
  return [kernel = reference::kernel(view.node.op), attrs = view.node.attrs,
          types = NodeTypes(view), n = view.out(Binary::y).n_elems(),
          &pool = context.pool](const LaunchArgs& args) {
    constexpr int64_t kPiece = 1024;
    for_blocks(pool, n, kPiece, [&](int64_t begin, int64_t end, int) {
      double numbers[3][kPiece];
      const auto n_elems = static_cast<size_t>(end - begin);
      reference::RefTensor in[2], out[1] = {{.type = {}, .data = {numbers[2], n_elems}}};
      for (size_t i = 0; i < types.in.size(); ++i) {
        in[i].data = {numbers[i], n_elems};
        reference::load(types.in[i], args.operands[i] + bytes_of(types.in[i], begin), in[i].data);
      }
      kernel({.attrs = attrs, .in = in, .out = out});
      reference::store(types.out[0], out[0].data, args.results[0] + bytes_of(types.out[0], begin));
    });
  };
}

LaunchFn prepare_cast(const NodeView& view, Context& context) {
  ThreadPool& pool = context.pool;
  return
      [types = NodeTypes(view), n = view.out(Unary::y).n_elems(), &pool](const LaunchArgs& args) {
        cast(types.operand(args, Unary::x), types.result(args, Unary::y), n, pool);
      };
}

// In f32, one rounding.
LaunchFn prepare_rescale(const NodeView& view, Context& context) {
  ThreadPool& pool = context.pool;
  return
      [types = NodeTypes(view), n = view.out(Rescale::y).n_elems(), &pool](const LaunchArgs& args) {
        scaled_sum({.a = types.operand(args, Rescale::x),
                    .y = types.result(args, Rescale::y),
                    .alpha = *data<float>(args, Rescale::factor)},
                   n, pool);
      };
}

bool rescale_applies(const NodeView& view) {
  return all_f32_or_bf16(view) && view.in(Rescale::factor).dtype == Dtype::f32;
}

LaunchFn prepare_axpby(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), n = view.out(Axpby::y).n_elems(),
          &pool = context.pool](const LaunchArgs& args) {
    scaled_sum({.a = types.operand(args, Axpby::a),
                .b = types.operand(args, Axpby::b),
                .y = types.result(args, Axpby::y),
                .alpha = *data<float>(args, Axpby::factor_a),
                .beta = *data<float>(args, Axpby::factor_b)},
               n, pool);
  };
}
bool axpby_applies(const NodeView& view) {
  return all_f32_or_bf16(view) && view.in(Axpby::factor_a).dtype == Dtype::f32 &&
         view.in(Axpby::factor_b).dtype == Dtype::f32;
}

LaunchFn prepare_fill(const NodeView& view, Context& context) {
  ThreadPool& pool = context.pool;
  const auto value = static_cast<float>(view.attrs<FillAttrs>().value);
  return [types = NodeTypes(view), n = view.out(Make::y).n_elems(), value,
          &pool](const LaunchArgs& args) { fill(types.result(args, Make::y), value, n, pool); };
}

LaunchFn prepare_gated(const NodeView& view, Context& context) {
  ThreadPool& pool = context.pool;
  return [types = NodeTypes(view), n = view.out(GatedAct::y).n_elems(),
          &pool](const LaunchArgs& args) {
    gated_silu(types.operand(args, GatedAct::gate), types.operand(args, GatedAct::up),
               types.result(args, GatedAct::y), n, pool);
  };
}

LaunchFn prepare_gated_grad(const NodeView& view, Context& context) {
  ThreadPool& pool = context.pool;
  return with_amax_sink(view, [types = NodeTypes(view), n = view.out(GatedActGrad::dgate).n_elems(),
                               &pool](const LaunchArgs& args, AmaxSink* amax) {
    gated_silu_backward({.gate = types.operand(args, GatedActGrad::gate),
                         .up = types.operand(args, GatedActGrad::up),
                         .dy = types.operand(args, GatedActGrad::dy),
                         .dgate = types.result(args, GatedActGrad::dgate),
                         .dup = types.result(args, GatedActGrad::dup),
                         .amax = amax},
                        n, pool);
  });
}

// To one number.
// Forward it rounds to the nearest value of a format, as encoding with that format's overflow does.
bool cast_in_applies(const NodeView& view) {
  return view.in(Unary::x).dtype == Dtype::f32 && view.out(Unary::y).dtype == Dtype::f32;
}
LaunchFn prepare_cast_in(const NodeView& view, Context& context) {
  const auto& attrs = view.attrs<CastInAttrs>();
  const bool rounds = attrs.direction == Direction::forward && attrs.dtype != Dtype::f32;
  if (!rounds) return prepare_cast(view, context);
  const EncodeOptions overflow{.saturate = !find_format(attrs.dtype).has_inf};
  return [dtype = attrs.dtype, overflow, n = view.out(Unary::y).n_elems(),
          &pool = context.pool](const LaunchArgs& args) {
    visit_format(dtype, [&]<Dtype D>() {
      const auto* x = data<float>(args, Unary::x);
      auto* y = data_out<float>(args, Unary::y);
      for_blocks(pool, n, kBlockElems, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i)
          y[i] = decode<D>(encode<D>(x[i], Rounding::near, overflow));
      });
    });
  };
}

LaunchFn prepare_gelu(const NodeView& view, Context& context) {
  ThreadPool& pool = context.pool;
  return [kind = view.attrs<GeluAttrs>().kind, types = NodeTypes(view),
          n = view.out(Gelu::y).n_elems(), &pool](const LaunchArgs& args) {
    gelu(kind, types.operand(args, Gelu::x), types.result(args, Gelu::y), n, pool);
  };
}

LaunchFn prepare_gelu_grad(const NodeView& view, Context& context) {
  ThreadPool& pool = context.pool;
  return with_amax_sink(
      view, [kind = view.attrs<GeluAttrs>().kind, types = NodeTypes(view),
             n = view.out(GeluGrad::dx).n_elems(), &pool](const LaunchArgs& args, AmaxSink* amax) {
        gelu_backward({kind, types.operand(args, GeluGrad::x), types.operand(args, GeluGrad::dy),
                       types.result(args, GeluGrad::dx), amax},
                      n, pool);
      });
}

LaunchFn prepare_bias_add(const NodeView& view, Context& context) {
  ThreadPool& pool = context.pool;
  return [types = NodeTypes(view), shape = rows_of(view.in(BiasAdd::x)),
          &pool](const LaunchArgs& args) {
    add_bias(types.operand(args, BiasAdd::x), types.operand(args, BiasAdd::bias),
             types.result(args, BiasAdd::y), shape, pool);
  };
}

int64_t column_sum_scratch(const NodeView& view) {
  return norm_backward_scratch(rows_of(view.in(Unary::x)), 1) * static_cast<int64_t>(sizeof(float));
}

LaunchFn prepare_column_sum(const NodeView& view, Context& context) {
  ThreadPool& pool = context.pool;
  return
      [types = NodeTypes(view), shape = rows_of(view.in(Unary::x)), &pool](const LaunchArgs& args) {
        column_sum(types.operand(args, Unary::x), types.result(args, Unary::y),
                   reinterpret_cast<float*>(args.scratch), shape, pool);
      };
}

const Binding kElementwiseBindings[] = {
#define ROWS_unary(op)                             \
  {{OpCode::op, "simd", in_lanes}, prepare_lanes}, \
      {{OpCode::op, "doubles", in_doubles}, prepare_doubles},
#define ROWS_binary ROWS_unary
#define ROWS_compare ROWS_unary
#define ROWS_scaled(op) {{OpCode::op, "simd", rescale_applies}, prepare_rescale},
#define ELEMENT(op, arity, ...) ROWS_##arity(op)
#include "math/elementwise.def"
    {{OpCode::axpby, "simd", axpby_applies}, prepare_axpby},
    {{OpCode::cast_in, "simd", cast_in_applies}, prepare_cast_in},
    {{OpCode::cast, "simd", all_f32_or_bf16}, prepare_cast},
    {{OpCode::stop_gradient, "simd", all_f32_or_bf16}, prepare_cast},
    {{OpCode::fill, "simd", all_f32_or_bf16}, prepare_fill},
    {{OpCode::gated_act, "simd", all_f32_or_bf16}, prepare_gated},
    {{OpCode::gated_act_grad, "simd", all_f32_or_bf16}, prepare_gated_grad},
    {{OpCode::gelu, "simd", all_f32_or_bf16}, prepare_gelu},
    {{OpCode::gelu_grad, "simd", all_f32_or_bf16}, prepare_gelu_grad},
    {{OpCode::bias_add, "simd", all_f32_or_bf16}, prepare_bias_add},
    {{OpCode::column_sum, "simd", all_f32_or_bf16, column_sum_scratch}, prepare_column_sum},
};

}  // namespace

std::span<const Binding> elementwise_bindings() {
  return kElementwiseBindings;
}

}  // namespace octet::cpu
