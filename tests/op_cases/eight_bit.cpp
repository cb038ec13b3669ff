// Cases of quantizers, and of ops that read codes or quantize as they store. All are Typed.
#include <fmt/format.h>

#include "op_cases/families.h"

namespace octet::op_cases {

namespace {

// amax_quantize: the amax of x, of maxima that came with it, or both; with a history or without.
void add_own_scales(Cases& all, Dtype dtype, const QuantizeAttrs& q) {
  const std::string format(dtype_name(dtype));
  const std::vector<OperandCase> maxima = {scalar(3.5), scalar(0, Dtype::boolean), scalar(0.5),
                                           scalar(1, Dtype::boolean)};
  for (const auto& [name, history] :
       {std::pair("current", none()), std::pair("delayed", scales({4})),
        std::pair("delayed_long", scales({37}))}) {
    const auto put = [&, name = name, history = history](const std::string& what,
                                                         const AmaxQuantizeAttrs& a,
                                                         const std::vector<OperandCase>& behind,
                                                         const std::vector<ResultType>& results) {
      std::vector<OperandCase> operands = {tensor({5, 37}, Fill::wide), history};
      operands.insert(operands.end(), behind.begin(), behind.end());
      while (operands.back().absent) operands.pop_back();
      put_typed(all, "amax_quantize_" + what + "_" + name + "_" + format, OpCode::amax_quantize, a,
                operands, results);
    };
    const ResultType transposed = ResultType(dtype).transposed(16);
    put("measured", {q, false, true}, {}, {dtype});
    put("known", {q, false, false}, {scalar(37.25)}, {dtype});
    put("joined", {q, false, true}, maxima, {dtype});
    put("both", {q, true, true}, maxima, {dtype});
    put("both_of_maxima", {q, true, false}, maxima, {dtype});
    put("transposed", {q, false, false}, {scalar(5)}, {transposed});
  }
}

}  // namespace

void add_scales(Cases& all) {
  put_typed(all, "amax_one", OpCode::amax, NoAttrs{}, {tensor({3, 5})});
  put_typed(all, "amax_three", OpCode::amax, NoAttrs{},
            {tensor({7}), tensor({2, 33}, Fill::wide), tensor({})});
  put_typed(all, "amax_of_maxima", OpCode::amax, NoAttrs{},
            {tensor({3, 5}), scalar(7), scalar(0, Dtype::boolean), scalar(0.5),
             scalar(0, Dtype::boolean)});
  put_typed(all, "amax_of_a_flag", OpCode::amax, NoAttrs{},
            {scalar(3), scalar(1, Dtype::boolean), tensor({2, 9})});
  put_typed(all, "any_of_one", OpCode::any_of, NoAttrs{}, {scalar(0, Dtype::boolean)});
  put_typed(all, "any_of_three", OpCode::any_of, NoAttrs{},
            {scalar(0, Dtype::boolean), scalar(1, Dtype::boolean), scalar(0, Dtype::boolean)});
  const OperandCase history = scales({4});
  for (const auto& [name, dtype, target] :
       {std::tuple("e4m3", Dtype::e4m3, 448.0), std::tuple("e5m2", Dtype::e5m2, 57344.0),
        std::tuple("hif8", Dtype::hif8, 15.0)}) {
    const QuantizeAttrs q{.target = target};
    const AmaxScaleAttrs scale = scale_attrs(q);
    const auto named = [name = name](const std::string& op) { return op + "_" + name; };
    put_typed(all, named("quant_scale"), OpCode::quant_scale, scale, {scalar(37.25)});
    put_typed(all, named("quant_scale_zero"), OpCode::quant_scale, scale, {scalar(0)});
    put_typed(all, named("delayed_scale"), OpCode::delayed_scale, scale, {scalar(37.25), history});
    put_typed(all, named("quantize"), OpCode::quantize, q, {tensor({3, 5}), scalar(0.01)}, {dtype});
    put_typed(all, named("quantize_saturates"), OpCode::quantize, q,
              {tensor({7, 33}, Fill::wide), scalar(1e-5)}, {dtype});
    add_own_scales(all, dtype, q);
    const ResultType groups(codes({}, dtype, "1x16").type);
    put_typed(all, named("quantize_groups"), OpCode::quantize_groups, q, {tensor({5, 37})},
              {groups});
    put_typed(all, named("add_quantize"), OpCode::add_quantize, q,
              {tensor({3, 33}), tensor({3, 33})}, {Dtype::real, groups});
    put_typed(all, named("dequantize"), OpCode::dequantize, NoAttrs{},
              {codes({3, 5}, dtype), scalar(0.3)});
    put_typed(all, named("reduce_scatter"), OpCode::reduce_scatter, CollectiveAttrs{},
              {codes({3, 100}, dtype), none(), scalar(0.3)});
    put_typed(all, named("all_reduce_into"), OpCode::all_reduce, CollectiveAttrs{},
              {codes({3, 100}, dtype), tensor({3, 100}), scalar(0.3)});
    const OperandCase by_group = codes({5, 37}, dtype, "1x16");
    put_typed(all, named("dequantize_groups"), OpCode::dequantize, NoAttrs{},
              {by_group, scales_of(by_group)});
    for (const auto kind : {Granularity::Kind::row, Granularity::Kind::group}) {
      const int64_t size = kind == Granularity::Kind::row ? 0 : 16;
      const OperandCase x = quantized({5, 37}, dtype, {kind, size, Dtype::f32});
      put_typed(all, named("dequantize_" + granularity_name(x.type.granularity) + "_f32"),
                OpCode::dequantize, NoAttrs{}, {x, scales_of(x)});
    }
    const ResultType transposed = ResultType(dtype).transposed(16);
    put_typed(all, named("quantize_both"), OpCode::quantize_both, q, {tensor({5, 7}), scalar(0.02)},
              {dtype});
    QuantizeAttrs limited = q;
    limited.limit = 3;  // in the middle of the values
    put_typed(all, named("quantize_limited"), OpCode::quantize, limited,
              {tensor({5, 300}), scalar(0.2)}, {dtype});
    put_typed(all, named("quantize_both_limited"), OpCode::quantize_both, limited,
              {tensor({5, 7}), scalar(0.2)}, {dtype});
    put_typed(all, named("quantize_transposed"), OpCode::quantize, q,
              {tensor({17, 3}), scalar(0.02)}, {transposed});
  }
}

// Layers that quantize with a scale of before, and make NaN of what is above the limit.
void add_limited_layers(Cases& all) {
  const Shape shape{5, 48};
  const OperandCase w = typed({48}, Dtype::bf16, Fill::normal), given = scalar(0.2);
  for (const Dtype dtype : {Dtype::e4m3, Dtype::hif8}) {
    const QuantizeAttrs q{.target = 15, .limit = 3};
    const auto named = [&](std::string_view op) {
      return fmt::format("{}_limited_{}", op, dtype_name(dtype));
    };
    put_typed(all, named("rms_norm_quantize"), OpCode::rms_norm_quantize,
              NormQuantizeAttrs{.layer = {}, .q = q}, {tensor(shape), w, none(), given}, {dtype});
    put_typed(all, named("gated_act_quantize"), OpCode::gated_act_quantize,
              GatedActQuantizeAttrs{.layer = {}, .q = q},
              {tensor(shape), tensor(shape), none(), none(), given}, {dtype});
    put_typed(all, named("gelu_quantize"), OpCode::gelu_quantize,
              GeluQuantizeAttrs{.layer = {}, .q = q}, {tensor(shape), none(), given}, {dtype});
  }
}

// A scale that is measured anew, and one of a tensor of zeros, which stays.
void add_periodic_scales(Cases& all) {
  const AmaxScaleAttrs a{.target = 15};
  for (const double amax : {0.0, 37.25, 15.0, 15.000001, 1e-35, 3e38}) {
    put_typed(all, fmt::format("periodic_scale_{}", amax), OpCode::periodic_scale, a,
              {scalar(amax), scalar(0.25)});
  }
}

// Blocks of rows and columns, ragged at both edges, with scales that are powers of two.
void add_blocks(Cases& all) {
  struct BlockCase {
    std::string name;
    int64_t rows, cols;
    Dtype scales;
    ScaleRule rule;
  };
  const BlockCase cases[] = {
      {"row_groups", 1, 16, Dtype::bf16, ScaleRule::power_ceil},
      {"column_groups", 16, 1, Dtype::bf16, ScaleRule::power_ceil},
      {"square", 16, 16, Dtype::bf16, ScaleRule::power_ceil},
      {"mx", 1, 32, Dtype::e8m0, ScaleRule::power_ceil},
      {"mx_floor", 1, 32, Dtype::e8m0, ScaleRule::mx_floor},
      {"mx_columns", 32, 1, Dtype::e8m0, ScaleRule::power_ceil},
      {"f32_groups", 1, 16, Dtype::f32, ScaleRule::linear},
      {"f32_columns", 16, 1, Dtype::f32, ScaleRule::linear},
      {"f32_square", 16, 16, Dtype::f32, ScaleRule::linear},
      {"rows", 1, 0, Dtype::f32, ScaleRule::linear},
  };
  for (const Dtype dtype : {Dtype::e4m3, Dtype::hif8}) {
    for (const BlockCase& c : cases) {
      const QuantizeAttrs q{.target = dtype == Dtype::hif8 ? 15.0 : 448.0, .rule = c.rule};
      const std::string name = fmt::format("_blocks_{}_{}", c.name, dtype_name(dtype));
      using Kind = Granularity::Kind;
      const Kind kind = c.cols == 0   ? Kind::row
                        : c.rows == 1 ? Kind::group
                        : c.cols == 1 ? Kind::column_group
                                      : Kind::block;
      const OperandCase x =
          quantized({37, 70}, dtype, {kind, c.cols == 0 ? 0 : std::max(c.rows, c.cols), c.scales});
      put_typed(all, "quantize" + name, OpCode::quantize_groups, q, {tensor({37, 70}, Fill::wide)},
                {ResultType(x.type)});
      put_typed(all, "dequantize" + name, OpCode::dequantize, NoAttrs{}, {x, scales_of(x)});
    }
  }
  put_typed(all, "gemm_blocks", OpCode::gemm, GemmAttrs{.trans_b = true},
            {codes({5, 37}, Dtype::e4m3, "1x16"), codes({19, 37}, Dtype::e4m3, "16x16"),
             tensor({5, 19}), filled({5, 3}, Dtype::bf16, 0.5), filled({2, 3}, Dtype::bf16, 0.25)});
  put_typed(all, "gemm_blocks_by_tensor", OpCode::gemm, GemmAttrs{.trans_a = true},
            {codes({37, 5}, Dtype::e4m3, "16x1"), codes({37, 19}), none(),
             filled({3, 5}, Dtype::bf16, 2), scalar(0.3)});
}

// Roundings that no fused kernel knows.
void add_rounded(Cases& all) {
  for (const Dtype source : {Dtype::f32, Dtype::bf16, Dtype::fp16}) {
    const QuantizeAttrs q{.target = 224, .rounding = Rounding::hr, .source = source};
    const std::string name = fmt::format("_hybrid_{}", dtype_name(source));
    put_typed(all, "quantize" + name, OpCode::quantize, q,
              {tensor({7, 33}, Fill::wide), scalar(0.25)}, {Dtype::hif8});
    put_typed(all, "quantize_both" + name, OpCode::quantize_both, q,
              {tensor({7, 33}, Fill::wide), scalar(0.25)}, {Dtype::hif8});
  }
  // Ragged rows, whose words begin anywhere in a block of four.
  OperandCase draw = integers({3}, Fill::ids, 1000);
  draw.type.dtype = Dtype::u32;
  for (const Dtype dtype : {Dtype::hif8, Dtype::e5m2}) {
    const QuantizeAttrs drawn{.target = 224, .rounding = Rounding::sr, .stream = 77};
    const std::string name = fmt::format("_stochastic_{}", dtype_name(dtype));
    put_typed(all, "quantize" + name, OpCode::quantize, drawn,
              {tensor({7, 33}, Fill::wide), scalar(0.25), draw}, {dtype});
    put_typed(all, "quantize_both" + name, OpCode::quantize_both, drawn,
              {tensor({7, 33}, Fill::wide), scalar(0.25), draw}, {dtype});
    put_typed(all, "quantize_transposed" + name, OpCode::quantize, drawn,
              {tensor({130, 64}, Fill::wide), scalar(0.25), draw},
              {ResultType(dtype).transposed(16)});
  }
  const QuantizeAttrs even{.target = 224, .rounding = Rounding::rne};
  put_typed(all, "quantize_even", OpCode::quantize, even,
            {tensor({7, 33}, Fill::wide), scalar(0.25)}, {Dtype::hif8});
}

// A scale a row, and a scale a group: ragged, in one piece and in many.
void add_fake_quantize(Cases& all) {
  for (const auto& [name, dtype, target] :
       {std::tuple("e4m3", Dtype::e4m3, 448.0), std::tuple("e5m2", Dtype::e5m2, 57344.0),
        std::tuple("hif8", Dtype::hif8, 15.0), std::tuple("int8", Dtype::int8, 127.0)}) {
    for (const bool power : {false, true}) {
      const auto put = [&, name = name, dtype = dtype, target = target](
                           const std::string& of, const Shape& shape, int64_t group) {
        put_typed(all, fmt::format("fake_quantize_{}_{}{}", of, name, power ? "_power" : ""),
                  OpCode::fake_quantize, FakeQuantizeAttrs{dtype, target, group, power},
                  {tensor(shape, Fill::wide)});
      };
      put("rows", {3, 37}, 37);
      put("groups", {5, 70}, 32);
      put("long_rows", {2, 2500}, 1 << 20);
    }
  }
}

// Ops that give the amax of what they store: operand by operand, ragged and in whole sixteens.
void add_amax_results(Cases& all) {
  for (const Shape& shape : {Shape{5, 37}, Shape{3, 64}, Shape{130, 48}}) {
    const std::string size = "_amax" + to_string(shape);
    const OperandCase x = tensor(shape), ids = integers({shape[0]}, Fill::ids, shape[0]);
    put_typed(all, "gated_act_grad" + size, OpCode::gated_act_grad, GatedActAttrs{.amax = true},
              {x, x, x});
    put_typed(all, "gelu_grad" + size, OpCode::gelu_grad, GeluAttrs{.amax = true}, {x, x});
    const OperandCase code = codes(shape, Dtype::e4m3, "1x16"), s = scales_of(code);
    put_typed(all, "gated_act_grad_stored" + size, OpCode::gated_act_grad,
              GatedActAttrs{.amax = true}, {x, code, code, s, s});
    put_typed(all, "gelu_grad_stored" + size, OpCode::gelu_grad,
              GeluAttrs{.kind = GeluKind::erf, .amax = true}, {x, code, s});
    const OperandCase rows = scales({shape[0]}), w = tensor({shape[1]});
    put_typed(all, "rms_norm_grad" + size, OpCode::rms_norm_grad, NormAttrs{.amax = true},
              {x, x, rows, none(), none(), x});
    put_typed(all, "rms_norm_grad_stored" + size, OpCode::rms_norm_grad, NormAttrs{.amax = true},
              {x, code, rows, w, s});
    put_typed(all, "layer_norm_grad_stored" + size, OpCode::layer_norm_grad,
              NormAttrs{.amax = true},
              {x, code, typed({shape[0]}, Dtype::f32, Fill::normal), rows, w, s, x});
    if (shape[1] % 16 != 0) continue;
    put_typed(all, "rope" + size, OpCode::rope,
              RopeAttrs{.heads = shape[1] / 16, .head_dim = 16, .inverse = true, .amax = true},
              {x, ids});
  }
  put_typed(all, "rope_amax_ragged", OpCode::rope,
            RopeAttrs{.heads = 3, .head_dim = 6, .amax = true},
            {tensor({5, 18}, Fill::wide), integers({5}, Fill::ids, 5)});
}

// Ops whose operands are stored as codes in groups of 16 along rows of 37.
void add_stored(Cases& all) {
  const Shape shape{5, 37}, rows{5}, cols{37};
  const OperandCase x = codes(shape, Dtype::e4m3, "1x16"), s = scales_of(x);
  const OperandCase dy = tensor(shape), w = tensor(cols), rstd = scales(rows);
  const NormAttrs norm{.eps = 1e-5};
  put_typed(all, "rms_norm_stored", OpCode::rms_norm, norm, {x, none(), s});
  put_typed(all, "rms_norm_stored_w", OpCode::rms_norm, norm, {x, w, s});
  put_typed(all, "rms_norm_grad_stored", OpCode::rms_norm_grad, norm, {dy, x, rstd, w, s});
  put_typed(all, "rms_norm_grad_stored_c", OpCode::rms_norm_grad, norm, {dy, x, rstd, w, s, dy});
  put_typed(all, "layer_norm_stored", OpCode::layer_norm, norm, {x, w, w, s});
  put_typed(all, "layer_norm_grad_stored", OpCode::layer_norm_grad, norm,
            {dy, x, typed(rows, Dtype::f32, Fill::normal), rstd, w, s});
  put_typed(all, "layer_norm_grad_stored_c", OpCode::layer_norm_grad, norm,
            {dy, x, typed(rows, Dtype::f32, Fill::normal), rstd, none(), s, dy});
  const GatedActAttrs act;
  put_typed(all, "gated_act_stored", OpCode::gated_act, act, {x, x, s, s});
  const OperandCase x1 = codes(shape), one = scales_of(x1);
  put_as_others(all, "gated_act_one_scale", OpCode::gated_act, act, {x1, x1, one, one});
  put_as_others(all, "gated_act_grad_one_scale", OpCode::gated_act_grad, act,
                {dy, x1, x1, one, one});
  put_as_others(all, "gelu_one_scale", OpCode::gelu, GeluAttrs{}, {x1, one});
  put_as_others(all, "gelu_grad_one_scale", OpCode::gelu_grad, GeluAttrs{}, {dy, x1, one});
  put_as_others(all, "rms_norm_one_scale", OpCode::rms_norm, norm, {x1, w, one});
  put_typed(all, "gated_act_grad_stored", OpCode::gated_act_grad, act, {dy, x, x, s, s});
  const GeluAttrs gelu{.kind = GeluKind::tanh};
  put_typed(all, "gelu_stored", OpCode::gelu, gelu, {x, s});
  put_typed(all, "gelu_grad_stored", OpCode::gelu_grad, gelu, {dy, x, s});
  const QuantizeAttrs q;
  const NormQuantizeAttrs norm_q{.layer = norm, .q = q};
  put_typed(all, "rms_norm_quantize_stored", OpCode::rms_norm_quantize, norm_q, {x, w, s},
            {Dtype::e4m3});
  put_typed(all, "rms_norm_quantize_scaled", OpCode::rms_norm_quantize,
            NormQuantizeAttrs{.layer = {}, .q = q}, {tensor(shape), w, none(), scalar(0.01)},
            {Dtype::e4m3});
  put_typed(all, "rms_norm_quantize_plain", OpCode::rms_norm_quantize,
            NormQuantizeAttrs{.layer = {}, .q = q}, {tensor(shape)}, {Dtype::e4m3});
  const OperandCase mean = typed(rows, Dtype::f32, Fill::normal), given = scalar(0.01);
  put_typed(all, "rms_norm_known", OpCode::rms_norm, NormAttrs{},
            {tensor(shape), none(), none(), rstd});
  put_typed(all, "rms_norm_known_stored", OpCode::rms_norm, norm, {x, w, s, rstd});
  put_typed(all, "layer_norm_known", OpCode::layer_norm, NormAttrs{},
            {tensor(shape), w, none(), none(), mean, rstd});
  put_typed(all, "layer_norm_known_stored", OpCode::layer_norm, norm, {x, w, w, s, mean, rstd});
  put_typed(all, "rms_norm_quantize_known", OpCode::rms_norm_quantize, norm_q,
            {x, w, s, given, none(), rstd}, {Dtype::e4m3});
  put_typed(all, "rms_norm_quantize_known_plain", OpCode::rms_norm_quantize,
            NormQuantizeAttrs{.layer = {}, .q = q},
            {tensor(shape), none(), none(), given, none(), rstd}, {Dtype::e4m3});
  put_typed(all, "layer_norm_quantize_known", OpCode::layer_norm_quantize, norm_q,
            {x, w, w, s, given, none(), mean, rstd}, {Dtype::e4m3});
  const OperandCase history = scales({4});
  const ResultType e4m3 = Dtype::e4m3, transposed = e4m3.transposed(16);
  put_typed(all, "rms_norm_quantize_known_transposed", OpCode::rms_norm_quantize,
            NormQuantizeAttrs{.layer = norm, .q = q}, {x, w, s, given, none(), rstd}, {transposed});
  put_typed(all, "layer_norm_quantize_known_transposed", OpCode::layer_norm_quantize,
            NormQuantizeAttrs{.layer = {}, .q = q},
            {tensor(shape), w, none(), none(), given, none(), mean, rstd}, {transposed});
  const NormQuantizeAttrs both{.layer = {}, .q = q, .both = true};
  put_typed(all, "rms_norm_quantize_both", OpCode::rms_norm_quantize, both, {tensor(shape), w},
            {e4m3});
  put_typed(all, "rms_norm_quantize_delayed", OpCode::rms_norm_quantize, both,
            {tensor(shape), w, none(), none(), history}, {e4m3});
  put_typed(all, "layer_norm_quantize_plain", OpCode::layer_norm_quantize,
            NormQuantizeAttrs{.layer = {}, .q = q}, {tensor(shape)}, {Dtype::e4m3});
  put_typed(all, "layer_norm_quantize_both", OpCode::layer_norm_quantize, both,
            {tensor(shape), w, w}, {e4m3});
  put_typed(all, "layer_norm_quantize_stored", OpCode::layer_norm_quantize, norm_q, {x, w, w, s},
            {Dtype::e4m3});
  put_typed(all, "layer_norm_quantize_scaled", OpCode::layer_norm_quantize, norm_q,
            {x, none(), none(), s, scalar(0.01)}, {Dtype::e4m3});
  put_typed(all, "layer_norm_quantize_delayed", OpCode::layer_norm_quantize, norm_q,
            {x, w, w, s, none(), history}, {Dtype::e4m3});
  const GeluQuantizeAttrs gelu_q{.layer = gelu, .q = q};
  put_typed(all, "gelu_quantize_stored", OpCode::gelu_quantize, gelu_q, {x, s}, {Dtype::e4m3});
  put_typed(all, "gelu_quantize_scaled", OpCode::gelu_quantize, gelu_q, {x, s, scalar(0.5)},
            {Dtype::e4m3});
  put_typed(all, "gelu_quantize_both", OpCode::gelu_quantize,
            GeluQuantizeAttrs{.layer = {.kind = GeluKind::erf}, .q = q, .both = true},
            {tensor(shape)}, {e4m3});
  put_typed(all, "gelu_quantize_delayed", OpCode::gelu_quantize, gelu_q, {x, s, none(), history},
            {Dtype::e4m3});
  const GatedActQuantizeAttrs act_q{.layer = act, .q = q};
  put_typed(all, "gated_act_quantize_stored", OpCode::gated_act_quantize, act_q, {x, x, s, s},
            {Dtype::e4m3});
  put_typed(all, "gated_act_quantize_scaled", OpCode::gated_act_quantize, act_q,
            {x, x, s, s, scalar(0.5)}, {Dtype::e4m3});
  const GatedActQuantizeAttrs one_q{.layer = {}, .q = q, .both = true};
  put_as_others(all, "gated_act_quantize_one_scale", OpCode::gated_act_quantize, one_q,
                {x1, x1, one, one, scalar(0.5)}, {e4m3});
  put_as_others(all, "gated_act_quantize_one_scale_own", OpCode::gated_act_quantize, one_q,
                {x1, x1, one, one}, {e4m3});
  put_typed(all, "gated_act_quantize_plain", OpCode::gated_act_quantize,
            GatedActQuantizeAttrs{.layer = {}, .q = q}, {tensor(shape), tensor(shape)},
            {Dtype::e4m3});
  put_typed(all, "gated_act_quantize_both", OpCode::gated_act_quantize,
            GatedActQuantizeAttrs{.layer = {}, .q = q, .both = true},
            {tensor(shape), tensor(shape)}, {e4m3});
  put_typed(all, "gated_act_quantize_delayed", OpCode::gated_act_quantize, act_q,
            {x, x, s, s, none(), history}, {Dtype::e4m3});
  const ResultType groups(x.type), real(Dtype::real);
  const std::vector<ResultType> kept_types{Dtype::e4m3, real, real, real, real, groups};
  std::vector<ResultType> keeps_types = kept_types;
  keeps_types.insert(keeps_types.end(), {real, groups});
  const GatedActQuantizeAttrs keeps{.layer = {}, .q = q, .kept_target = 448};
  const OperandCase gate = tensor({7, 160}, Fill::wide), up = tensor({7, 160});
  put_as_others(all, "gated_act_quantize_kept", OpCode::gated_act_quantize, keeps, {gate, up},
                keeps_types);
  put_as_others(all, "gated_act_quantize_kept_scaled", OpCode::gated_act_quantize, keeps,
                {gate, up, none(), none(), given}, keeps_types);
  put_as_others(all, "gated_act_quantize_kept_delayed", OpCode::gated_act_quantize, keeps,
                {gate, up, none(), none(), none(), history}, keeps_types);
  put_as_others(all, "gelu_quantize_kept", OpCode::gelu_quantize,
                GeluQuantizeAttrs{.layer = {}, .q = q, .kept_target = 448}, {gate}, kept_types);
  const auto put_gradients = [&](const std::string& name, const GatedActQuantizeAttrs& attrs,
                                 const std::vector<OperandCase>& operands) {
    put_typed(all, "gated_act_grad_quantize_" + name, OpCode::gated_act_grad_quantize, attrs,
              operands, {e4m3});
  };
  const GatedActQuantizeAttrs both_q{.layer = act, .q = q, .both = true};
  put_gradients("stored", both_q, {dy, x, x, s, s});
  put_gradients("by_row", act_q, {dy, x, x, s, s});
  put_gradients("scaled", both_q, {dy, x, x, s, s, scalar(0.5)});
  const OperandCase small = tensor({5, 12});
  put_gradients("plain", {.layer = {}, .q = q, .both = true}, {small, small, small});
  put_gradients("one_scale", one_q, {dy, x1, x1, one, one, scalar(0.5)});
  all.back().as_others = true;
  put_gradients("delayed", both_q, {dy, x, x, s, s, none(), history});
}

}  // namespace octet::op_cases
