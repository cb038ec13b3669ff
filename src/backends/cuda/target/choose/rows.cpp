#include "backends/cuda/target/choose/rows.h"

#include <cstdint>

#include "base/error.h"

namespace octet::cuda {
namespace {

std::string_view name_of(RowKernel kernel) {
  switch (kernel) {
    using enum RowKernel;
    case norm_rows:
      return "norm_rows";
    case norm_rows_any:
      return "norm_rows_any";
    case norm_amax:
      return "norm_amax";
    case norm_once:
      return "norm_once";
    case norm_codes:
      return "norm_codes";
    case act_rows:
      return "act_rows";
    case act_rows_any:
      return "act_rows_any";
    case act_amax:
      return "act_amax";
    case gated_rows:
      return "gated_rows";
    case layer_tiles:
    case layer_tiles_any:
      return "layer_tiles";
    case norm_tiles:
      return "norm_tiles";
    case gated_tiles:
      return "gated_tiles";
    case norm_grad:
      return "norm_grad";
    case norm_grad_any:
      return "norm_grad_any";
    case act_grad:
      return "act_grad";
    case act_grad_any:
      return "act_grad_any";
    case gated_grad_codes:
      return "gated_grad_codes";
    case gated_grad_tiles:
      return "gated_grad_tiles";
  }
  CHECK(false);
}

bool is_gated(const RowLayerParams& p) {
  return p.layer == RowLayer::gated_silu;
}
bool is_any(const RowLayerParams& p) {
  return p.form == Form::any || p.out == Out::any;
}
bool has_codes_of_codes(const RowLayerParams& p) {
  return p.form == Form::groups && p.out == Out::e4m3;
}

// Codes of codes have kernels of their own: for an amax, with codes or without; with a scale that
// is given, statistics and codes at once; and for codes where mean and rstd are known.
RowKernel norm_kernel(const RowLayerParams& p, const LayerPass& pass) {
  if (!is_any(p) && p.form == Form::groups && pass.pass == Pass::first)
    return pass.first_encodes ? RowKernel::norm_once : RowKernel::norm_amax;
  if (has_codes_of_codes(p)) {
    if (pass.pass == Pass::given && !pass.known) return RowKernel::norm_once;
    const bool in_32_bits = p.rows * (p.cols / kRowChunk) < INT32_MAX;
    if (pass.known && in_32_bits) return RowKernel::norm_codes;
  }
  return is_any(p) ? RowKernel::norm_rows_any : RowKernel::norm_rows;
}
RowKernel act_kernel(const RowLayerParams& p) {
  if (is_any(p)) return RowKernel::act_rows_any;
  const bool quantizes_codes = p.form == Form::groups && p.out != Out::unquantized;
  return is_gated(p) && quantizes_codes ? RowKernel::gated_rows : RowKernel::act_rows;
}

// Sixteen elements are counted in 32 bits.
bool are_tiles_in_32_bits(int64_t cols, int64_t padded_rows) {
  constexpr int64_t kMax = int64_t{1} << 31;
  return padded_rows < kMax - kCodeTile && cols < kMax - kCodeTile &&
         (padded_rows + kCodeTile) / kRowChunk < kMax / (cols + kCodeTile);
}
RowKernel tile_kernel(const RowLayerParams& p) {
  if (is_any(p)) return RowKernel::layer_tiles_any;
  if (!has_codes_of_codes(p))
    return p.form == Form::groups ? RowKernel::layer_tiles_any : RowKernel::layer_tiles;
  if (!is_norm(p.layer) && !is_gated(p)) return RowKernel::layer_tiles;
  if (p.rows <= 0 || !are_tiles_in_32_bits(p.cols, p.codes.padded_rows))
    return RowKernel::layer_tiles_any;
  return is_gated(p) ? RowKernel::gated_tiles : RowKernel::norm_tiles;
}

enum class By : uint8_t { rows, tiles };

void add(RowLayerParams& p, By by, LayerPass pass) {
  pass.known = pass.known || p.known_rstd_at != kAbsent;
  pass.keeps = pass.keeps && p.kept_x.codes_at != kAbsent;
  pass.kernel = by == By::tiles    ? tile_kernel(p)
                : is_norm(p.layer) ? norm_kernel(p, pass)
                                   : act_kernel(p);
  p.passes[p.n_passes++] = pass;
}

bool transposes(const RowLayerParams& p) {
  return p.codes.transposed_at != kAbsent;
}

void with_given_scale(RowLayerParams& p) {
  if (!transposes(p)) return add(p, By::rows, {.pass = Pass::given});
  const bool makes_statistics = is_norm(p.layer) && p.known_rstd_at == kAbsent;
  if (makes_statistics) add(p, By::rows, {.pass = Pass::none});
  add(p, By::tiles, {.pass = Pass::given});
}

void with_own_scale(RowLayerParams& p) {
  const bool norm = is_norm(p.layer), has_history = p.codes.n_history > 0;
  const By last = transposes(p) ? By::tiles : By::rows;
  // The scales of codes bound the results of an activation: one pass reads codes.
  if (has_codes_of_codes(p) && !norm) {
    p.passes[p.n_passes++] = {
        .pass = Pass::first, .kernel = RowKernel::act_amax, .keeps = false, .bounded = true};
    return add(p, last, {.pass = Pass::second, .bounded = true});
  }
  const bool by_tiles = transposes(p) && !norm && has_history;
  const bool first_encodes = has_history && (!transposes(p) || by_tiles);
  add(p, by_tiles ? By::tiles : By::rows, {.pass = Pass::first, .first_encodes = first_encodes});
  add(p, last,
      {.pass = Pass::second, .known = true, .keeps = false, .first_encodes = first_encodes});
}

}  // namespace

// One pass where there is nothing to quantize or the scale is known, two where the scale is made
// from the result.
void choose_kernels(RowLayerParams& p) {
  p.form = form_of(p);
  p.out = out_of(p, p.form);
  p.n_passes = 0;
  if (!p.quantized) {
    if (p.rows > 0) add(p, By::rows, {.pass = Pass::none});
  } else if (p.codes.given_at == kAbsent) {
    with_own_scale(p);
  } else if (p.rows > 0 && p.cols > 0) {
    with_given_scale(p);
  }
}
KernelNames launches_of(const RowLayerParams& p) {
  KernelNames names;
  for (int i = 0; i < p.n_passes; ++i) names.push_back(name_of(p.passes[i].kernel));
  return names;
}

void choose_kernels(NormGradParams& p) {
  p.form = form_of(p);
  p.kernel = p.form == Form::any ? RowKernel::norm_grad_any : RowKernel::norm_grad;
}
KernelNames launches_of(const NormGradParams& p) {
  if (p.cols == 0 && p.amax.amax_at == kAbsent) return {};
  KernelNames names = {name_of(p.kernel)};
  if (p.weight.at != kAbsent && p.dw.at != kAbsent && p.cols != 0) names.push_back("sum_parts");
  return names;
}

void choose_kernels(ActGradParams& p) {
  p.form = form_of(p);
  const bool bf16 = p.first.dtype == Dtype::bf16 && p.second.dtype == Dtype::bf16;
  const bool in_32_bits = p.rows * p.cols / 8 < INT32_MAX;
  if (p.layer == RowLayer::gated_silu && p.form == Form::groups && bf16 && in_32_bits) {
    p.kernel = RowKernel::gated_grad_codes;
  } else {
    p.kernel = p.form == Form::any ? RowKernel::act_grad_any : RowKernel::act_grad;
  }
}
KernelNames launches_of(const ActGradParams& p) {
  if (p.rows * p.cols == 0 && p.amax.amax_at == kAbsent) return {};
  return {name_of(p.kernel)};
}

void choose_kernels(GradCodesParams& p) {
  p.form = p.x.group == 0 ? Form::bf16 : Form::groups;
  p.whole = p.rows % kCodeTile == 0 && p.cols % kCodeTile == 0 && p.codes.padded_rows == p.rows;
  const bool has_scale = p.codes.given_at != kAbsent;
  p.n_passes = has_scale ? 1 : 2;
  p.passes[0] = has_scale ? Pass::given : Pass::first;
  p.passes[1] = has_scale ? Pass::none : Pass::second;
}
KernelNames launches_of(const GradCodesParams& p) {
  return repeated(name_of(RowKernel::gated_grad_tiles), p.n_passes);
}

void choose_kernels(RopeParams& p) {
  p.is_any = p.x.dtype != p.y.dtype || p.x.dtype == Dtype::f32 || p.head_dim / 2 % 8 != 0;
}
KernelNames launches_of(const RopeParams& p) {
  if (p.rows == 0 && p.amax.amax_at == kAbsent) return {};
  return {p.is_any ? "rope_any" : "rope_short"};
}

void choose_kernels(BiasParams& p) {
  const auto goes = [&](const UnquantizedArg& arg) {
    return arg.at == kAbsent || arg.dtype == p.x.dtype;
  };
  const bool sums = p.bias.at == kAbsent;
  p.is_short = p.cols % 8 == 0 && p.x.dtype != Dtype::f32 && (sums || (goes(p.bias) && goes(p.y)));
}
KernelNames launches_of(const BiasParams& p) {
  if (p.bias.at == kAbsent)
    return p.cols == 0 ? KernelNames{} : KernelNames{"column_parts", "sum_parts"};
  if (p.rows * p.cols == 0) return {};
  return {p.is_short ? "add_bias_short" : "add_bias_any"};
}

}  // namespace octet::cuda
