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

// Codes of y into out[0]; with no scale given, the scale and the flag into out[1] and out[2].
void quantize_result(const QuantizeAttrs& q, RefTensor y, std::span<const double> given_scale,
                     std::span<RefTensor> out) {
  for (double& e : y.data) e = round_to(Dtype::f32, e);
  const Attrs attrs = q;
  double scale = given_scale.empty() ? 0 : given_scale[0];
  RefTensor scale_tensor{.type = {.dtype = Dtype::f32, .shape = {}}, .data = {&scale, 1}};
  if (given_scale.empty()) {
    double largest = 0;
    RefTensor amax_tensor{.type = scale_tensor.type, .data = {&largest, 1}};
    RefTensor found[] = {amax_tensor, out[2]};
    amax({.attrs = attrs, .in = {&y, 1}, .out = found});
    quant_scale({.attrs = attrs, .in = {&amax_tensor, 1}, .out = {&scale_tensor, 1}});
    out[1].data[0] = scale;
  }
  const RefTensor in[] = {y, scale_tensor};
  quantize({.attrs = attrs, .in = in, .out = out.first(1)});
}

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
  std::vector<double> y(call.in[0].data.size()), rstd(dim(call.in[0], 0));
  RefTensor out[] = {
      {.type = {.dtype = Dtype::f32, .shape = call.in[0].type.shape}, .data = y},
      {.type = {.dtype = Dtype::f32, .shape = {call.in[0].type.shape[0]}}, .data = rstd}};
  rms_norm({.attrs = Attrs(a.norm), .in = plain.get(), .out = out});
  quantize_result(a.q, out[0], optional(call.in, 3), call.out);
  if (call.out.size() > 3) std::copy(rstd.begin(), rstd.end(), call.out[3].data.begin());
}

void gated_act_quantize(const RefCall& call) {
  const auto& a = std::get<GatedActQuantizeAttrs>(call.attrs);
  const PlainOperands plain(call, a.act.group, {{0, 2}, {1, 3}});
  std::vector<double> y(call.in[0].data.size());
  RefTensor out[] = {{.type = {.dtype = Dtype::f32, .shape = call.in[0].type.shape}, .data = y}};
  gated_act({.attrs = Attrs(a.act), .in = plain.get(), .out = out});
  quantize_result(a.q, out[0], optional(call.in, 4), call.out);
}

}  // namespace octet::reference
