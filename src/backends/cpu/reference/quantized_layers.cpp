// Ops on operands that may be codes in groups: dequantized to f32, then the unquantized kernel. And
// ops that quantize as they store: the unquantized kernel, its result rounded to f32, then the
// per-tensor quantizer.
#include <algorithm>
#include <list>

#include "backends/cpu/reference/kernels.h"
#include "ir/ops/quantize_layers.h"

namespace octet::reference {
namespace {

class DequantizedOperands {
 public:
  DequantizedOperands(const RefCall& call, std::span<const ScalePlace> places)
      : tensors_(call.in.begin(), call.in.end()) {
    for (const ScalePlace place : places) {
      if (tensors_[place.operand].type.is_scaled()) expand(place);
      if (place.scale < tensors_.size()) tensors_[place.scale] = {};
    }
  }
  std::span<const RefTensor> get() const { return tensors_; }

 private:
  void expand(ScalePlace place) {
    const TensorType wide{.dtype = Dtype::f32, .shape = tensors_[place.operand].type.shape};
    buffers_.emplace_back(size(wide.n_elems()));
    const RefTensor in[] = {tensors_[place.operand], tensors_[place.scale]};
    RefTensor out[] = {{.type = wide, .data = buffers_.back()}};
    const Attrs none = NoAttrs{};
    dequantize({.attrs = none, .in = in, .out = out});
    tensors_[place.operand] = out[0];
  }

  std::vector<RefTensor> tensors_;
  std::list<std::vector<double>> buffers_;
};

void on_dequantized(Kernel kernel, const RefCall& call, OpCode op) {
  const DequantizedOperands dequantized(call, op_def(op).scales);
  kernel({.attrs = call.attrs, .in = dequantized.get(), .out = call.out});
}

// What a fused quantizer makes its scale from, and leaves.
struct ScaleOfAmax {
  const Attrs attrs;
  std::span<const RefTensor> values;  // whose amax it is of
  const RefTensor* history = nullptr;
  RefTensor nonfinite, next_history;

  double make() const {
    double largest = 0, scale = 0;
    const TensorType scalar{Dtype::f32, {}};
    RefTensor found[] = {{.type = scalar, .data = {&largest, 1}}, nonfinite};
    amax({.attrs = attrs, .in = values, .out = found});
    RefTensor made[] = {{.type = scalar, .data = {&scale, 1}}, next_history};
    if (history == nullptr) {
      quant_scale({.attrs = attrs, .in = {found, 1}, .out = made});
    } else {
      const RefTensor in[] = {found[0], *history};
      delayed_scale({.attrs = attrs, .in = in, .out = made});
    }
    return scale;
  }
};

// The operand of a slot, nullptr where it is absent.
const RefTensor* tensor_at(const RefCall& call, SlotId slot) {
  return optional(call.in, slot).empty() ? nullptr : &call.in[slot];
}

// The layer's result and statistics, in doubles, and the quantizer of the result.
class LayerQuantizer {
 public:
  LayerQuantizer(const RefCall& call, OpCode op)
      : call_(call),
        op_(*quantized_layer(op)),
        parts_(split(call.attrs)),
        attrs_(parts_.q),
        places_(op_def(op).scales),
        dequantized_(call, places_) {}

  void run(Kernel layer) {
    const Shape& shape = call_.in[0].type.shape;
    std::vector<double> y(call_.in[0].data.size());
    std::vector<std::vector<double>> statistics(op_.n_statistics(),
                                                std::vector<double>(size(shape[0])));
    std::vector<RefTensor> out = {{.type = {.dtype = Dtype::f32, .shape = shape}, .data = y}};
    for (auto& rows : statistics)
      out.push_back({.type = {.dtype = Dtype::f32, .shape = {shape[0]}}, .data = rows});
    const auto operands = dequantized_.get();
    if (!operand(op_.known_rstd).empty()) {
      normalize(operands, y);
    } else {
      layer({.attrs = parts_.layer,
             .in = operands.first(std::min<size_t>(operands.size(), op_.given_scale)),
             .out = out});
    }
    for (double& e : y) e = round_to(Dtype::f32, e);
    double scale = make_scale(out[0]);
    if (own_scale()) call_.out[kLayerScale].data[0] = scale;
    for (size_t i = 0; operand(op_.known_rstd).empty() && i < statistics.size(); ++i)
      std::copy(statistics[i].begin(), statistics[i].end(),
                call_.out[kLayerNonfinite + 1 + i].data.begin());
    write_codes(out[0], scale);
    if (parts_.kept_target > 0) keep_operands();
  }

 private:
  std::span<double> operand(SlotId slot) const { return optional(call_.in, slot); }

  // A norm whose statistics are given.
  void normalize(std::span<const RefTensor> operands, std::span<double> y) const {
    const bool centred = op_def(op_.layer).is_centred;
    const auto rstd = operand(op_.known_rstd), mean = operand(op_.known_mean);
    const auto w =
        optional(operands, centred ? SlotId{LayerNorm::weight} : SlotId{RmsNorm::weight});
    const auto b = centred ? optional(operands, LayerNorm::bias) : w.first(0);
    for (size_t r = 0; r < rstd.size(); ++r) {
      const auto x = row(operands[0], r);
      for (size_t c = 0; c < x.size(); ++c) {
        const double v = (x[c] - (centred ? mean[r] : 0)) * rstd[r] * (w.empty() ? 1 : w[c]);
        y[r * x.size() + c] = v + (b.empty() ? 0 : b[c]);
      }
    }
  }

  void keep_operands() const {
    const Attrs groups = QuantizeAttrs{.target = parts_.kept_target};
    for (size_t i = 0; i < places_.size(); ++i) {
      const RefTensor in[] = {call_.in[places_[i].operand]};
      RefTensor out[] = {call_.out[op_.kept + 2 * i], call_.out[op_.kept + 2 * i + 1]};
      quantize_groups({.attrs = groups, .in = in, .out = out});
    }
  }

  bool own_scale() const { return operand(op_.given_scale).empty(); }

  double make_scale(const RefTensor& y) const {
    if (!own_scale()) return operand(op_.given_scale)[0];
    const RefTensor* const history = tensor_at(call_, op_.history);
    return ScaleOfAmax{scale_attrs(parts_.q),
                       {&y, 1},
                       history,
                       call_.out[kLayerNonfinite],
                       history == nullptr ? RefTensor{} : call_.out[op_.next_history]}
        .make();
  }

  void write_codes(const RefTensor& y, double scale) const {
    const RefTensor in[] = {y, {.type = {Dtype::f32, {}}, .data = {&scale, 1}}};
    RefTensor out[] = {call_.out[kLayerQ], call_.out.back()};
    parts_.both ? quantize_both({.attrs = attrs_, .in = in, .out = out})
                : quantize({.attrs = attrs_, .in = in, .out = out});
  }

  const RefCall& call_;
  const QuantizedLayer& op_;
  const QuantizedLayerAttrs parts_;
  const Attrs attrs_;
  std::span<const ScalePlace> places_;
  DequantizedOperands dequantized_;
};

}  // namespace

void rms_norm(const RefCall& call) {
  on_dequantized(unquantized::rms_norm, call, OpCode::rms_norm);
}
void rms_norm_grad(const RefCall& call) {
  on_dequantized(unquantized::rms_norm_grad, call, OpCode::rms_norm_grad);
}
void layer_norm(const RefCall& call) {
  on_dequantized(unquantized::layer_norm, call, OpCode::layer_norm);
}
void layer_norm_grad(const RefCall& call) {
  on_dequantized(unquantized::layer_norm_grad, call, OpCode::layer_norm_grad);
}
void gated_act(const RefCall& call) {
  on_dequantized(unquantized::gated_act, call, OpCode::gated_act);
}
void gated_act_grad(const RefCall& call) {
  on_dequantized(unquantized::gated_act_grad, call, OpCode::gated_act_grad);
}
void gelu(const RefCall& call) {
  on_dequantized(unquantized::gelu, call, OpCode::gelu);
}
void gelu_grad(const RefCall& call) {
  on_dequantized(unquantized::gelu_grad, call, OpCode::gelu_grad);
}

void rms_norm_quantize(const RefCall& call) {
  LayerQuantizer(call, OpCode::rms_norm_quantize).run(unquantized::rms_norm);
}
void layer_norm_quantize(const RefCall& call) {
  LayerQuantizer(call, OpCode::layer_norm_quantize).run(unquantized::layer_norm);
}
void gated_act_quantize(const RefCall& call) {
  LayerQuantizer(call, OpCode::gated_act_quantize).run(unquantized::gated_act);
}
void gelu_quantize(const RefCall& call) {
  LayerQuantizer(call, OpCode::gelu_quantize).run(unquantized::gelu);
}

// Both gradients are rounded to dy's type, and share a scale.
void gated_act_grad_quantize(const RefCall& call) {
  using Op = GatedActGradQuantize;
  const auto& parts = std::get<GatedActQuantizeAttrs>(call.attrs);
  const Attrs attrs = parts.q;
  const TensorType& dy = call.in[Op::dy].type;
  std::vector<double> values[] = {std::vector<double>(call.in[Op::dy].data.size()),
                                  std::vector<double>(call.in[Op::dy].data.size())};
  RefTensor gradients[] = {{.type = dy, .data = values[0]}, {.type = dy, .data = values[1]}};
  DequantizedOperands dequantized(call, op_def(OpCode::gated_act_grad_quantize).scales);
  gated_act_grad({.attrs = parts.act, .in = dequantized.get().first(Op::up + 1), .out = gradients});
  for (auto& gradient : values) {
    for (double& x : gradient) x = round_to(dy.dtype, x);
  }
  const TensorType scalar{Dtype::f32, {}};
  double scale = 0;
  if (const auto given = optional(call.in, Op::given_scale); !given.empty()) {
    scale = given[0];
  } else {
    const RefTensor* const history = tensor_at(call, Op::history);
    scale = ScaleOfAmax{scale_attrs(parts.q), gradients, history, call.out[Op::nonfinite],
                        history == nullptr ? RefTensor{} : call.out[Op::next_history]}
                .make();
    call.out[Op::scale].data[0] = scale;
  }
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const RefTensor in[] = {gradients[i], {.type = scalar, .data = {&scale, 1}}};
    if (parts.both) {
      RefTensor out[] = {call.out[Op::dgate + i], call.out[Op::dgate_transposed + i]};
      quantize_both({.attrs = attrs, .in = in, .out = out});
    } else {
      quantize({.attrs = attrs, .in = in, .out = {&call.out[Op::dgate + i], 1}});
    }
  }
}

}  // namespace octet::reference
