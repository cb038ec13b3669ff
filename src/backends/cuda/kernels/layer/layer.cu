// Which passes a layer takes: one where there is nothing to quantize or the scale is known, two
// where the scale is made from the result.
#include "backends/cuda/kernels/common/layer.cuh"
#include "backends/cuda/kernels/common/row_launch.cuh"

namespace octet::cuda {
namespace {

LayerArgs layer_args(const RowLayerParams& p, const Launch& launch) {
  LayerArgs a;
  a.x = matrix_of(p.x, p.cols, launch);
  a.up = matrix_of(p.up, p.cols, launch);
  a.weight = operand_of(p.weight, launch);
  a.bias = operand_of(p.bias, launch);
  a.y = result_of(p.y, launch);
  a.rows = p.rows;
  a.cols = p.cols;
  a.n_sm = launch.n_sm;
  a.layer = p.layer;
  a.eps = p.eps;
  a.mean = result_at<float>(launch, p.mean_at);
  a.rstd = result_at<float>(launch, p.rstd_at);
  if (p.known_rstd_at != kAbsent) {
    a.known = true;
    a.mean = const_cast<float*>(operand_at<float>(launch, p.known_mean_at));
    a.rstd = const_cast<float*>(operand_at<float>(launch, p.known_rstd_at));
  }
  if (!p.quantized) return a;
  const CodesArg& c = p.codes;
  auto* const scratch = static_cast<float*>(launch.scratch);
  a.seen = reinterpret_cast<ActSeen*>(launch.counters);
  a.code = c.dtype;
  a.codes = result_at<uint8_t>(launch, c.rows_at);
  a.transposed = result_at<uint8_t>(launch, c.transposed_at);
  a.padded_rows = c.padded_rows;
  a.kept_x = {result_at<uint8_t>(launch, p.kept_x.codes_at),
              result_at<uint16_t>(launch, p.kept_x.scales_at)};
  a.kept_up = {result_at<uint8_t>(launch, p.kept_up.codes_at),
               result_at<uint16_t>(launch, p.kept_up.scales_at)};
  a.scale = {.n_history = c.n_history,
             .target = c.target,
             .limit = c.limit,
             .given = operand_at<float>(launch, c.given_at),
             .history = operand_at<float>(launch, c.history_at),
             .partial = scratch,
             .scale = result_at<float>(launch, c.scale_at),
             .flag = result_at<uint8_t>(launch, c.flag_at),
             .next_history = result_at<float>(launch, c.next_history_at)};
  if (a.mean == nullptr) a.mean = scratch + kLayerPartials;
  if (a.rstd == nullptr) a.rstd = scratch + kLayerPartials + p.rows;
  return a;
}

// A prepared layer.
struct Layer {
  Form form;
  Out out;
  cudaStream_t stream;

  void rows(const LayerArgs& a) const {
    is_norm(a.layer) ? launch_norm_rows(form, out, a, stream)
                     : launch_act_rows(form, out, a, stream);
  }
  void tiles(const LayerArgs& a) const { launch_tiles(form, out, a, stream); }

  void given(LayerArgs a) const {
    a.scale.pass = Pass::given;
    if (a.transposed == nullptr) return rows(a);
    if (is_norm(a.layer) && !a.known) statistics(a);
    tiles(a);
  }
  void statistics(LayerArgs a) const {
    a.scale.pass = Pass::none;
    rows(a);
  }
  // The scales of codes bound the results of an activation: one pass reads codes.
  void by_bounds(LayerArgs a) const {
    a.scale.pass = Pass::first;
    a.scale.bounded = true;
    launch_act_amax(a, stream);
    a.scale.n_partial = act_amax_blocks(a);
    a.scale.pass = Pass::second;
    a.transposed != nullptr ? tiles(a) : rows(a);
  }
  void own(LayerArgs a) const {
    if (form == Form::groups && out == Out::e4m3 && !is_norm(a.layer)) return by_bounds(a);
    const bool transposed = a.transposed != nullptr, norm = is_norm(a.layer);
    const bool by_tiles = transposed && !norm && a.scale.n_history > 0;
    a.scale.pass = Pass::first;
    a.scale.first_encodes = a.scale.n_history > 0 && (!transposed || by_tiles);
    by_tiles ? tiles(a) : rows(a);
    const Form kernel = out == Out::any ? Form::any : form;
    a.scale.n_partial = by_tiles ? tile_blocks(kernel, a)
                        : norm   ? norm_blocks(kernel, a)
                                 : act_blocks(kernel, a);
    a.scale.pass = Pass::second;
    a.known = true;
    a.kept_x = a.kept_up = {};
    transposed ? tiles(a) : rows(a);
  }
};

void run_layer(const RowLayerParams& p, const Launch& launch) {
  const Form form = form_of(p);
  const Layer layer{form, out_of(p, form), launch.stream};
  const LayerArgs args = layer_args(p, launch);
  if (!p.quantized) {
    if (p.rows > 0) layer.rows(args);
  } else if (p.codes.given_at == kAbsent) {
    layer.own(args);
  } else if (p.rows > 0 && p.cols > 0) {
    layer.given(args);
  }
}

constexpr PrepareFn kPrepare = stateless<RowLayerParams, run_layer>;
const KernelEntry kRows[] = {
    {KernelId::rms_norm, kPrepare},   {KernelId::rms_norm_quantize, kPrepare},
    {KernelId::layer_norm, kPrepare}, {KernelId::layer_norm_quantize, kPrepare},
    {KernelId::gated_act, kPrepare},  {KernelId::gated_act_quantize, kPrepare},
    {KernelId::gelu, kPrepare},       {KernelId::gelu_quantize, kPrepare},
};

}  // namespace

std::span<const KernelEntry> layer_kernels() {
  return kRows;
}

}  // namespace octet::cuda
