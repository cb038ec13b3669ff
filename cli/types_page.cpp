#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "base/error.h"
#include "cli/common.h"
#include "cli/docs_pages.h"
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
struct UseColumn {
  Use use;
  const char *key, *title;
};
constexpr UseColumn kUses[] = {{Use::gemm, "gemm", "factors of a GEMM"},
                               {Use::norm, "norm", "input of a norm"},
                               {Use::activation, "activation", "input of an activation"},
                               {Use::moment, "moment", "moment"},
                               {Use::dequantize, "dequantize", "dequantized"}};

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
    const ValueId skip = wide(Dtype::boolean, {}), attempt = wide(Dtype::u32, {});
    emit(OpCode::adamw_step, AdamwAttrs{},
         {w, w, x(), x(), one, one, one, one, skip, kNoValue, scale(), scale(), attempt});
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

// "kernel" where the op has one that reads the type, "decoded" where it is dequantized before.
std::string read_by(const UseGraph& use, const Catalogue& catalogue) {
  if (has_kernels(use.graph(), catalogue)) return "kernel";
  return has_kernels(lower(use.graph(), catalogue), catalogue) ? "decoded" : "reference";
}

// By back end; "-" where the op takes no such operand.
std::array<std::string, 2> use_of(const TensorType& type, Use use, const Backend (&both)[2]) {
  try {
    const UseGraph graph(type, use);
    return {read_by(graph, *both[0].catalogue), read_by(graph, *both[1].catalogue)};
  } catch (const Error&) {
    return {"-", "-"};
  }
}

// Scales as MX has them for groups of 32.
TensorType type_of(Dtype format, std::string_view granularity) {
  TensorType type{.dtype = format, .shape = kMatrix};
  type.granularity = find_granularity(granularity).value();
  if (granularity == "1x32") type.granularity.scale = Dtype::e8m0;
  return type;
}

}  // namespace

DocsPage types_page() {
  const Backend both[] = {cpu::make_backend(1, cpu::detect_isa()),
                          cuda::make_plan_backend({.n_threads = 1})};
  DocsPage page;
  Table table{{"type"}, {}};
  for (const UseColumn& column : kUses) table.columns.emplace_back(column.title);
  const auto add = [&](Dtype format, std::string_view granularity) {
    const TensorType type = type_of(format, granularity);
    const std::string text = to_string(type), name = text.substr(0, text.find('['));
    auto& cells = table.rows.emplace_back(std::vector{"`" + name + "`"});
    OrderedJson& json = page.json.emplace_back(OrderedJson{{"type", name}});
    for (const UseColumn& column : kUses) {
      const auto [on_cpu, on_gpu] = use_of(type, column.use, both);
      cells.push_back(on_cpu == on_gpu ? on_cpu : fmt::format("{} / {}", on_cpu, on_gpu));
      json[column.key] = {{"cpu", on_cpu}, {"gpu", on_gpu}};
    }
  };
  for (const Dtype format : kFormats8) {
    for (const std::string_view granularity : kGranularities) add(format, granularity);
  }
  for (const FormatRow& row : kFormats) {
    if (is_moment_format(row.dtype)) add(row.dtype, "run128");
  }
  page.markdown = table_markdown(table);
  return page;
}

}  // namespace octet
