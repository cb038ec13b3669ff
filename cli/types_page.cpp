#include "cli/types_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "base/error.h"
#include "compile/lower.h"
#include "formats/table.h"
#include "ir/builder.h"
#include "plan/views.h"

namespace octet {
namespace {

constexpr Dtype kFormats8[] = {Dtype::e4m3, Dtype::e5m2, Dtype::hif8, Dtype::int8};
constexpr std::string_view kGranularities[] = {"tensor", "row",   "1x16",   "1x128",
                                               "1x32",   "128x1", "128x128"};
const Shape kMatrix{256, 256};

enum class Use : uint8_t { gemm, norm, activation, moment, dequantize };

// A node that reads x, whose type it is about; the rest is BF16, and f32 where it must be.
class UseGraph {
 public:
  UseGraph(const TensorType& type, Use use) : type_(type), builder_(graph_) {
    graph_.phase = Phase::lowered;
    switch (use) {
      case Use::gemm:
        gemm();
        break;
      case Use::norm:
        emit(OpCode::rms_norm, NormAttrs{}, {x(), kNoValue, scale()});
        break;
      case Use::activation:
        emit(OpCode::gated_act, GatedActAttrs{}, {x(), x(), scale(), scale()});
        break;
      case Use::moment:
        moments();
        break;
      case Use::dequantize:
        emit(OpCode::dequantize, NoAttrs{}, {x(), scale()});
    }
  }
  const Graph& graph() const { return graph_; }

 private:
  ValueId input(const TensorType& type) {
    return builder_.input(InputKind::batch, fmt::format("x{}", graph_.inputs.size()), type);
  }
  ValueId x() { return x_ == kNoValue ? x_ = input(type_) : x_; }
  ValueId scale() { return scale_ == kNoValue ? scale_ = input(scale_type(type_)) : scale_; }
  ValueId wide(Dtype dtype, const Shape& shape) { return input({dtype, shape}); }
  void emit(OpCode op, const Attrs& attrs, const std::vector<ValueId>& operands) {
    builder_.output("y", builder_.emit_typed(op, attrs, operands, {Dtype::bf16, Dtype::f32})[0]);
  }
  // Groups lie along what is reduced.
  void gemm() {
    const bool is_column = type_.has(Granularity::Kind::column_group);
    emit(OpCode::gemm, GemmAttrs{.trans_a = is_column, .trans_b = !is_column},
         {x(), x(), kNoValue, scale(), scale()});
  }
  void moments() {
    const ValueId w = wide(Dtype::f32, kMatrix), one = wide(Dtype::f32, {});
    emit(
        OpCode::adamw_step, AdamwAttrs{},
        {w, w, x(), x(), one, one, one, one, wide(Dtype::boolean, {}), kNoValue, scale(), scale()});
  }

  TensorType type_;
  Graph graph_;
  Builder builder_;
  ValueId x_ = kNoValue, scale_ = kNoValue;
};

bool has_kernels(const Graph& graph, const Catalogue& catalogue) {
  return std::ranges::all_of(graph.nodes, [&](const Node& node) {
    if (is_view(graph, node)) return true;
    const auto choice = catalogue.choose(graph, node);
    return choice && !choice->reference;
  });
}

std::string read_by(const UseGraph& use, const Catalogue& catalogue) {
  if (has_kernels(use.graph(), catalogue)) return "kernel";
  return has_kernels(lower(use.graph(), catalogue), catalogue) ? "decoded" : "reference";
}

TypeUse use_of(const TensorType& type, Use use, const Catalogue& cpu, const Catalogue& gpu) {
  try {
    const UseGraph graph(type, use);
    return {read_by(graph, cpu), read_by(graph, gpu)};
  } catch (const Error&) {
    return {"-", "-"};  // the op takes no such operand
  }
}

std::string text_of(const TypeUse& use) {
  return use.cpu == use.gpu ? use.cpu : use.cpu + " / " + use.gpu;
}

// Scales as MX has them for groups of 32.
TensorType type_of(Dtype format, std::string_view granularity) {
  TensorType type{.dtype = format, .shape = kMatrix};
  type.granularity = find_granularity(granularity).value();
  if (granularity == "1x32") type.granularity.scale = Dtype::e8m0;
  return type;
}

}  // namespace

std::vector<QuantizedTypeRow> quantized_types() {
  const Backend cpu = cpu::make_backend(1, cpu::detect_isa());
  const Backend gpu = cuda::make_plan_backend({.n_threads = 1});
  std::vector<QuantizedTypeRow> rows;
  const auto add = [&](Dtype format, std::string_view granularity) {
    const TensorType type = type_of(format, granularity);
    const auto use = [&](Use what) { return use_of(type, what, *cpu.catalogue, *gpu.catalogue); };
    const std::string text = to_string(type);
    rows.push_back({.type = text.substr(0, text.find('[')),
                    .gemm = use(Use::gemm),
                    .norm = use(Use::norm),
                    .activation = use(Use::activation),
                    .moment = use(Use::moment),
                    .dequantize = use(Use::dequantize)});
  };
  for (const Dtype format : kFormats8) {
    for (const std::string_view granularity : kGranularities) add(format, granularity);
  }
  for (const FormatRow& row : kFormats) {
    if (is_moment_format(row.dtype)) add(row.dtype, "run128");
  }
  return rows;
}

std::string quantized_types_markdown() {
  std::string text =
      "| type | factors of a GEMM | input of a norm | input of an activation | moment | "
      "dequantized |\n| --- | --- | --- | --- | --- | --- |\n";
  for (const QuantizedTypeRow& row : quantized_types()) {
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", row.type, text_of(row.gemm),
                        text_of(row.norm), text_of(row.activation), text_of(row.moment),
                        text_of(row.dequantize));
  }
  return text;
}

}  // namespace octet
