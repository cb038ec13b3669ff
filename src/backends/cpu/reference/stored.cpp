// Ops on operands that may be codes in groups: dequantized to f32, then the plain kernel. And ops
// that quantize as they store: the plain kernel, its result rounded to f32, then the per-tensor
// quantizer.
#include <algorithm>
#include <initializer_list>
#include <list>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {
namespace {

// An operand that may be codes, and its scales.
struct Place {
  size_t codes, scales;
};

class PlainOperands {
 public:
  PlainOperands(const RefCall& call, int64_t group, std::initializer_list<Place> places)
      : tensors_(call.in.begin(), call.in.end()) {
    for (const Place& place : places) {
      if (group > 0) expand(place, group);
      if (place.scales < tensors_.size()) tensors_[place.scales] = {};
    }
  }
  std::span<const RefTensor> get() const { return tensors_; }

 private:
  void expand(const Place& place, int64_t group) {
    const TensorType wide{.dtype = Dtype::f32, .shape = tensors_[place.codes].type.shape};
    buffers_.emplace_back(size(wide.n_elems()));
    const RefTensor in[] = {tensors_[place.codes], tensors_[place.scales]};
    RefTensor out[] = {{.type = wide, .data = buffers_.back()}};
    dequantize({.attrs = Attrs(QuantizeAttrs{.group = group}), .in = in, .out = out});
    tensors_[place.codes] = out[0];
  }

  std::vector<RefTensor> tensors_;
  std::list<std::vector<double>> buffers_;
};

void on_plain(Kernel kernel, const RefCall& call, int64_t group,
              std::initializer_list<Place> places) {
  const PlainOperands plain(call, group, places);
  kernel({.attrs = call.attrs, .in = plain.get(), .out = call.out});
}

int64_t norm_group(const RefCall& call) {
  return std::get<NormAttrs>(call.attrs).group;
}
int64_t act_group(const RefCall& call) {
  return std::get<GatedActAttrs>(call.attrs).group;
}
int64_t gelu_group(const RefCall& call) {
  return std::get<GeluAttrs>(call.attrs).group;
}

// The layer's result and statistics, in doubles, and the quantizer of the result.
class LayerQuantizer {
 public:
  // `n_layer`: operands of the layer; behind them stand scale and history.
  LayerQuantizer(const RefCall& call, const QuantizeAttrs& q, bool both, size_t n_layer)
      : call_(call), attrs_(q), both_(both), n_layer_(n_layer) {}

  void run(Kernel layer, const Attrs& plain, std::span<const RefTensor> operands,
           size_t n_statistics) {
    const Shape& shape = call_.in[0].type.shape;
    std::vector<double> y(call_.in[0].data.size());
    std::vector<std::vector<double>> statistics(n_statistics, std::vector<double>(size(shape[0])));
    std::vector<RefTensor> out = {{.type = {.dtype = Dtype::f32, .shape = shape}, .data = y}};
    for (auto& rows : statistics)
      out.push_back({.type = {.dtype = Dtype::f32, .shape = {shape[0]}}, .data = rows});
    if (n_statistics > 0 && !optional(call_.in, n_layer_ + 1 + n_statistics).empty()) {
      normalize(operands, n_statistics == 2, y);
    } else {
      layer(
          {.attrs = plain, .in = operands.first(std::min(operands.size(), n_layer_)), .out = out});
    }
    for (double& e : y) e = round_to(Dtype::f32, e);
    double scale = make_scale(out[0]);
    if (own_scale()) {
      call_.out[1].data[0] = scale;
      for (size_t i = 0; i < n_statistics; ++i)
        std::copy(statistics[i].begin(), statistics[i].end(), call_.out[3 + i].data.begin());
    }
    write_codes(out[0], scale);
  }

 private:
  // A norm whose statistics are given: mean, if there is one, and rstd behind the history.
  void normalize(std::span<const RefTensor> operands, bool centred, std::span<double> y) const {
    const auto rstd = call_.in[n_layer_ + (centred ? 3 : 2)].data;
    const auto w = optional(operands, 1), b = centred ? optional(operands, 2) : w.first(0);
    for (size_t r = 0; r < rstd.size(); ++r) {
      const auto x = row(operands[0], r);
      const double mean = centred ? call_.in[n_layer_ + 2].data[r] : 0;
      for (size_t c = 0; c < x.size(); ++c) {
        const double v = (x[c] - mean) * rstd[r] * (w.empty() ? 1 : w[c]);
        y[r * x.size() + c] = v + (b.empty() ? 0 : b[c]);
      }
    }
  }

  bool own_scale() const { return optional(call_.in, n_layer_).empty(); }

  double make_scale(const RefTensor& y) const {
    if (!own_scale()) return optional(call_.in, n_layer_)[0];
    double largest = 0, scale = 0;
    const TensorType scalar{.dtype = Dtype::f32, .shape = {}};
    RefTensor found[] = {{.type = scalar, .data = {&largest, 1}}, call_.out[2]};
    amax({.attrs = attrs_, .in = {&y, 1}, .out = found});
    RefTensor made[] = {{.type = scalar, .data = {&scale, 1}}, {}};
    if (optional(call_.in, n_layer_ + 1).empty()) {
      quant_scale({.attrs = attrs_, .in = {found, 1}, .out = made});
      return scale;
    }
    const RefTensor in[] = {found[0], call_.in[n_layer_ + 1]};
    made[1] = call_.out[call_.out.size() - (both_ ? 2 : 1)];
    delayed_scale({.attrs = attrs_, .in = in, .out = made});
    return scale;
  }

  void write_codes(const RefTensor& y, double scale) const {
    const RefTensor in[] = {y, {.type = {.dtype = Dtype::f32, .shape = {}}, .data = {&scale, 1}}};
    RefTensor out[] = {call_.out[0], call_.out.back()};
    both_ ? quantize_both({.attrs = attrs_, .in = in, .out = out})
          : quantize({.attrs = attrs_, .in = in, .out = out});
  }

  const RefCall& call_;
  const Attrs attrs_;
  bool both_;
  size_t n_layer_;
};

}  // namespace

void rms_norm_stored(const RefCall& call) {
  on_plain(rms_norm, call, norm_group(call), {{0, 2}});
}
void rms_norm_grad_stored(const RefCall& call) {
  on_plain(rms_norm_grad, call, norm_group(call), {{1, 4}});
}
void layer_norm_stored(const RefCall& call) {
  on_plain(layer_norm, call, norm_group(call), {{0, 3}});
}
void layer_norm_grad_stored(const RefCall& call) {
  on_plain(layer_norm_grad, call, norm_group(call), {{1, 5}});
}
void gated_act_stored(const RefCall& call) {
  on_plain(gated_act, call, act_group(call), {{0, 2}, {1, 3}});
}
void gated_act_grad_stored(const RefCall& call) {
  on_plain(gated_act_grad, call, act_group(call), {{1, 3}, {2, 4}});
}
void gelu_stored(const RefCall& call) {
  on_plain(gelu, call, gelu_group(call), {{0, 1}});
}
void gelu_grad_stored(const RefCall& call) {
  on_plain(gelu_grad, call, gelu_group(call), {{1, 2}});
}

void rms_norm_quantize(const RefCall& call) {
  const auto& a = std::get<NormQuantizeAttrs>(call.attrs);
  const PlainOperands plain(call, a.norm.group, {{0, 2}});
  LayerQuantizer(call, a.q, a.both, 3).run(rms_norm, a.norm, plain.get(), 1);
}

void layer_norm_quantize(const RefCall& call) {
  const auto& a = std::get<NormQuantizeAttrs>(call.attrs);
  const PlainOperands plain(call, a.norm.group, {{0, 3}});
  LayerQuantizer(call, a.q, a.both, 4).run(layer_norm, a.norm, plain.get(), 2);
}

void gated_act_quantize(const RefCall& call) {
  const auto& a = std::get<GatedActQuantizeAttrs>(call.attrs);
  const PlainOperands plain(call, a.act.group, {{0, 2}, {1, 3}});
  LayerQuantizer(call, a.q, a.both, 4).run(gated_act, a.act, plain.get(), 0);
}

void gelu_quantize(const RefCall& call) {
  const auto& a = std::get<GeluQuantizeAttrs>(call.attrs);
  const PlainOperands plain(call, a.act.group, {{0, 1}});
  LayerQuantizer(call, a.q, a.both, 2).run(gelu, a.act, plain.get(), 0);
}

}  // namespace octet::reference
