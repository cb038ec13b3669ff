// Which passes a layer takes: one where there is nothing to quantize or the scale is known, two
// where the scale is made from the result.
#include <vector>

#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/common/layer.cuh"
#include "backends/cuda/kernels/common/row_launch.cuh"
#include "backends/cuda/launch/context.h"

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

// One kernel of a layer, with what of its arguments is no address.
struct LayerPass {
  LayerLaunch launch;
  Pass pass = Pass::none;
  bool known = false;    // mean and rstd
  bool keeps = true;     // groups of operands
  bool bounded = false;  // ScaleArgs
  bool first_encodes = false;
  int n_partial = 0;
};

// What a layer launches, in order.
class LayerPasses {
 public:
  LayerPasses(const RowLayerParams& p, int n_sm) {
    problem_.form = form_of(p);
    problem_.out = out_of(p, problem_.form);
    problem_.keeps = p.kept_x.codes_at != kAbsent;
    LayerArgs& a = problem_.args;
    a.rows = p.rows;
    a.cols = p.cols;
    a.n_sm = n_sm;
    a.layer = p.layer;
    a.known = p.known_rstd_at != kAbsent;
    a.padded_rows = p.codes.padded_rows;
    a.scale.n_history = p.codes.n_history;
    transposes_ = p.quantized && p.codes.transposed_at != kAbsent;
    if (!p.quantized) {
      if (p.rows > 0) add(Kernel::rows, {.pass = Pass::none});
    } else if (p.codes.given_at == kAbsent) {
      with_own_scale();
    } else if (p.rows > 0 && p.cols > 0) {
      with_given_scale();
    }
  }
  const std::vector<LayerPass>& all() const { return passes_; }

 private:
  enum class Kernel { rows, tiles };

  void add(Kernel kernel, LayerPass pass) {
    LayerProblem p = problem_;
    p.args.known = pass.known = pass.known || p.args.known;
    p.args.scale.pass = pass.pass;
    p.args.scale.first_encodes = pass.first_encodes;
    p.keeps = p.keeps && pass.keeps;
    pass.launch = kernel == Kernel::tiles ? tiles_launch(p)
                  : is_norm(p.args.layer) ? norm_rows_launch(p)
                                          : act_rows_launch(p);
    passes_.push_back(pass);
  }
  void with_given_scale() {
    if (!transposes_) return add(Kernel::rows, {.pass = Pass::given});
    if (is_norm(problem_.args.layer) && !problem_.args.known)
      add(Kernel::rows, {.pass = Pass::none});  // the statistics
    add(Kernel::tiles, {.pass = Pass::given});
  }
  void with_own_scale() {
    const LayerArgs& a = problem_.args;
    const bool norm = is_norm(a.layer), has_history = a.scale.n_history > 0;
    const Kernel last = transposes_ ? Kernel::tiles : Kernel::rows;
    // The scales of codes bound the results of an activation: one pass reads codes.
    if (problem_.form == Form::groups && problem_.out == Out::e4m3 && !norm) {
      passes_.push_back(
          {.launch = act_amax_launch(a), .pass = Pass::first, .known = a.known, .bounded = true});
      return add(last, {.pass = Pass::second, .bounded = true, .n_partial = n_partial()});
    }
    const bool by_tiles = transposes_ && !norm && has_history;
    add(by_tiles ? Kernel::tiles : Kernel::rows,
        {.pass = Pass::first, .first_encodes = has_history && (!transposes_ || by_tiles)});
    add(last, {.pass = Pass::second,
               .known = true,
               .keeps = false,
               .first_encodes = passes_.front().first_encodes,
               .n_partial = n_partial()});
  }
  int n_partial() const { return static_cast<int>(passes_.front().launch.grid); }

  LayerProblem problem_;
  bool transposes_ = false;
  std::vector<LayerPass> passes_;
};

class Layer : public Prepared {
 public:
  Layer(const RowLayerParams& params, int n_sm) : p_(params), passes_(params, n_sm) {}

  void launch(const Launch& launch) override {
    const LayerArgs whole = layer_args(p_, launch);
    for (const LayerPass& pass : passes_.all()) {
      LayerArgs a = whole;
      a.known = pass.known;
      a.scale.pass = pass.pass;
      a.scale.bounded = pass.bounded;
      a.scale.first_encodes = pass.first_encodes;
      a.scale.n_partial = pass.n_partial;
      if (!pass.keeps) a.kept_x = a.kept_up = {};
      run(pass.launch, a, launch.stream);
    }
  }

 private:
  static void run(const LayerLaunch& made, const LayerArgs& a, cudaStream_t stream) {
    const LayerKernel kernel = made.kernel;
    if (made.is_early) return launch_early(kernel, {made.grid, made.threads}, stream, a);
    kernel<<<made.grid, made.threads, 0, stream>>>(a);
    check_launch(layer_name(a.layer));
  }
  static const char* layer_name(RowLayer layer) { return is_norm(layer) ? "norm" : "activation"; }

  RowLayerParams p_;
  LayerPasses passes_;
};

std::unique_ptr<Prepared> prepare_layer(const Request& request) {
  return std::make_unique<Layer>(request.get<RowLayerParams>(), request.context.n_sm);
}

const KernelEntry kRows[] = {
    {KernelId::rms_norm, prepare_layer},   {KernelId::rms_norm_quantize, prepare_layer},
    {KernelId::layer_norm, prepare_layer}, {KernelId::layer_norm_quantize, prepare_layer},
    {KernelId::gated_act, prepare_layer},  {KernelId::gated_act_quantize, prepare_layer},
    {KernelId::gelu, prepare_layer},       {KernelId::gelu_quantize, prepare_layer},
};

}  // namespace

std::span<const KernelEntry> layer_kernels() {
  return kRows;
}

}  // namespace octet::cuda
