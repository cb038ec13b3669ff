// The passes of a layer, one or two: the plan says which kernels (RowLayerParams::passes).
#include "backends/cuda/kernels/common/early_start.cuh"
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

// Problem of a pass, without addresses.
LayerProblem problem_of(const RowLayerParams& p, const LayerPass& pass, int n_sm) {
  LayerProblem problem{.kernel = pass.kernel, .form = p.form, .out = p.out, .keeps = pass.keeps};
  LayerArgs& a = problem.args;
  a.rows = p.rows;
  a.cols = p.cols;
  a.n_sm = n_sm;
  a.layer = p.layer;
  a.known = pass.known;
  a.padded_rows = p.codes.padded_rows;
  return problem;
}

LayerLaunch launch_of(const LayerProblem& p) {
  switch (p.kernel) {
    using enum RowKernel;
    case norm_rows:
    case norm_rows_any:
      return norm_rows_launch(p);
    case norm_amax:
      return norm_amax_launch(p.args);
    case norm_once:
      return norm_once_launch(p.args);
    case norm_codes:
      return norm_codes_launch(p.args);
    case act_rows:
    case act_rows_any:
      return act_rows_launch(p);
    case act_amax:
      return act_amax_launch(p.args);
    case gated_rows:
      return gated_rows_launch(p.args);
    case layer_tiles:
    case layer_tiles_any:
      return layer_tiles_launch(p);
    case norm_tiles:
    case gated_tiles:
      return code_tiles_launch(p.args);
    default:
      throw ModuleError("[cuda] expected a kernel of a layer");
  }
}

class Layer : public Prepared {
 public:
  Layer(const RowLayerParams& params, int n_sm) : p_(params) {
    for (int i = 0; i < p_.n_passes; ++i)
      launches_[i] = launch_of(problem_of(p_, p_.passes[i], n_sm));
  }

  void launch(const Launch& launch) override {
    const LayerArgs whole = layer_args(p_, launch);
    for (int i = 0; i < p_.n_passes; ++i) {
      const LayerPass& pass = p_.passes[i];
      LayerArgs a = whole;
      a.known = pass.known;
      a.scale.pass = pass.pass;
      a.scale.bounded = pass.bounded;
      a.scale.first_encodes = pass.first_encodes;
      if (pass.pass == Pass::second) a.scale.n_partial = static_cast<int>(launches_[0].grid);
      if (!pass.keeps) a.kept_x = a.kept_up = {};
      run(launches_[i], a, launch.stream);
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
  LayerLaunch launches_[2];
};

std::unique_ptr<Prepared> prepare_layer(const Request& request) {
  return std::make_unique<Layer>(request.get<RowLayerParams>(), request.n_sm);
}

const KernelEntry kRows[] = {{KernelId::layer, prepare_layer}};

}  // namespace

std::span<const KernelEntry> layer_kernels() {
  return kRows;
}

}  // namespace octet::cuda
