#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/common.h"
#include "cli/docs_pages.h"
#include "ir/op_def.h"
#include "ir/ops/axis_scales.h"
#include "ir/ops/scale_rules.h"

namespace octet {
namespace {

namespace scale = ops::scale;

// s(x): the scale of x; results in their order, where a rule gives them different ones.
struct RuleWords {
  ScaleFn rule;
  std::string_view result, data;
};

constexpr RuleWords kWords[] = {
    {scale::same, "that of the first operand", "the op on data"},
    {scale::rescale, "that of the first operand", "the op on data"},
    {scale::cast_in, "that of the operand", "rounded as data"},
    {scale::of_values, "1", "the op on values"},
    {scale::add, "p(sqrt(s(a)² + s(b)²)), or the larger addend's where the sum is near it",
     "operands at the result's scale"},
    {scale::mul, "s(a) s(b)", "the op on data"},
    {scale::div, "s(a) / s(b)", "the op on data"},
    {scale::compare, "1",
     "operands at the largest scale, apart from a zero's, an infinity's and a NaN's"},
    {scale::largest, "the largest, apart from a zero's, an infinity's and a NaN's",
     "operands at the result's scale"},
    {scale::select, "the larger, apart from a zero's, an infinity's and a NaN's",
     "operands at the result's scale"},
    {scale::square, "s(x)²", "the op on data"},
    {scale::integer_pow, "s(x)^n; 1 where that would leave 2^-60 to 2^60",
     "the op on data; on the value where the scale is 1"},
    {scale::root, "sqrt(s(x)), of an exponent that is made even first", "the op on data"},
    {scale::inverse_root, "1 / sqrt(s(x)), of an exponent that is made even first",
     "the op on data"},
    {scale::fill, "the value's power of two, rounded down", "the value over it, in [1, 2)"},
    {scale::pad, "s(x); the larger of it and the pad's where s(x) has a run-time factor",
     "what is padded with is divided by the result's scale"},
    {scale::reduce_sum, "p(s(x) sqrt(N)), N addends", "the operand at the result's scale"},
    {scale::reduce_prod, "s(x)^N, N factors; 1 where that would leave 2^-60 to 2^60",
     "the op on data; on the value where the scale is 1"},
    {scale::reduce_window, "sum: p(s(x) sqrt(W)), W addends of a window; max, min: s(x)",
     "the operand at the result's scale"},
    {scale::fold, "p(s(x) sqrt(W)), W windows a pixel on average",
     "the operand at the result's scale"},
    {scale::of_steps, "by the rules of the steps that the op is composed of", "in those steps"},
    {scale::dot, "p(s(a) s(b) sqrt(K)), K products", "divided after the op"},
    {scale::depthwise, "p(s(a) s(b) sqrt(K)), K products on average",
     "divided after the op; a weight gradient: the factors take it first"},
    {scale::gemm, "p(s(a) s(b) s(scale_a) s(scale_b) sqrt(K)), K products; with c as a sum's",
     "divided in the accumulator"},
    {scale::batched_gemm, "p(s(a) s(b) factor sqrt(K)), K products; with c as a sum's",
     "divided by the op's factor, c at the result's scale"},
    {scale::bias_add, "s(x), or 2^-10 times the bias's where that is larger",
     "operands at the result's scale"},
    {scale::column_sum, "s(x)", "the op on data"},
    {scale::scatter_add, "s(x)", "the op on data"},
    {scale::rms_norm, "s(weight); 1 / s(x)", "eps / s(x)²"},
    {scale::layer_norm, "s(weight), the bias as in bias_add; s(x); 1 / s(x)", "eps / s(x)²"},
    {scale::rms_norm_grad, "s(dy) s(weight) / s(x); s(dy)",
     "rstd at 1 / s(x), the addend at dx's scale"},
    {scale::layer_norm_grad, "s(dy) s(weight) / s(x); s(dy); s(dy)",
     "mean at s(x), rstd at 1 / s(x), the addend at dx's scale"},
    {scale::attention, "s(v); 1", "the softmax's factor (k, at run time) times s(q) s(k)"},
    {scale::attention_grad,
     "s(dout) s(v) / s(q); s(dout) s(v) / s(k), at run time times s(q); s(dout)",
     "the softmax's factor (k, at run time) times s(q) s(k), o at s(v)"},
    {scale::gated_act, "s(up)", "the op on data"},
    {scale::gated_act_grad, "s(dy) s(up); s(dy)", "the op on data"},
    {scale::gelu, "1", "the op on values"},
    {scale::gelu_grad, "s(dy)", "the op on data"},
    {scale::cross_entropy, "1", "the op on values"},
    {scale::cross_entropy_grad,
     "p(s(dloss) (1 - smoothing) sqrt(V - 1) / (V n)), V entries, n rows",
     "dloss at the result's scale"},
    {scale::global_norm, "1; 1; 1", "the op on values"},
    {scale::update, "1", "the gradient's data, whose scale joins grad_scale; the rest are values"},
    {scale::set_scale, "2^k; with a scale 2^k p(scale)", "x at that scale"},
    {scale::stop_scaling, "1", "the value"},
    {scale::rebalance, "s(x) 2^k", "x at that scale"},
    {scale::dynamic_rescale, "s(x) p(norm of the data)", "x at that scale"},
    {scale::delayed_rescale, "s(x) times the factor of the step before; 1", "x at that scale"},
    {scale::custom_scale, "2^k times powers of the other operands' scales", "x at that scale"},
    {scale::data_scale, "1; 1", "the data; s(x) as a value"},
};

// What becomes of scales of rows and columns (ops::scale::axis_scales).
std::string_view axis_words(OpCode op) {
  const OpDef& def = op_def(op);
  bool takes_values = def.operands.n_required() > 0;
  for (size_t i = 0; i < def.operands.n_required(); ++i)
    takes_values = takes_values && def.needs_unscaled.contains(i);
  if (takes_values) return "taken out";
  switch (scale::axis_scales(op)) {
    case scale::AxisScales::values:
      return "taken out";
    case scale::AxisScales::elements:
      return "kept";
    case scale::AxisScales::moved:
      return "moved";
    case scale::AxisScales::table:
      return "the table's: rows' looked up, columns' kept";
    case scale::AxisScales::gemm:
      return "those of op(a)'s rows and op(b)'s columns kept, where there is no c";
    default:
      return def.operands.size() == 0 ? "" : "one";
  }
}

}  // namespace

DocsPage scale_rules_page() {
  DocsPage page;
  // Ops by rule, and by what becomes of scales of rows and columns.
  std::vector<std::vector<std::pair<std::string_view, std::vector<std::string>>>> by_rule(
      std::size(kWords));
  std::vector<std::string> without;
  for (int code = 0; code < kOpCount; ++code) {
    const OpDef& def = op_def(static_cast<OpCode>(code));
    std::vector<std::string> operands, as_values, shown;
    for (size_t i = 0; i < def.operands.size(); ++i) {
      const std::string& name = operands.emplace_back(def.operands[i].name);
      const bool is_value = def.needs_unscaled.contains(i);
      shown.push_back(is_value ? "**" + name + "**" : name);
      if (is_value) as_values.push_back(name);
    }
    OrderedJson& json = page.json.emplace_back(
        OrderedJson{{"op", def.name}, {"operands", operands}, {"as_values", as_values}});
    json.update({{"scale", nullptr}, {"data", nullptr}, {"rows_and_columns", nullptr}});
    if (def.scale == nullptr) {
      without.emplace_back(def.name);
      continue;
    }
    const auto* const words = std::ranges::find(kWords, def.scale, &RuleWords::rule);
    CHECK(words != std::end(kWords));
    json["scale"] = words->result;
    json["data"] = words->data;
    const std::string_view axes = axis_words(static_cast<OpCode>(code));
    json["rows_and_columns"] = axes;
    auto& rows = by_rule[static_cast<size_t>(words - kWords)];
    auto row = std::ranges::find(rows, axes, [](const auto& one) { return one.first; });
    if (row == rows.end()) row = rows.insert(rows.end(), {axes, {}});
    row->second.push_back(fmt::format("{}({})", def.name, fmt::join(shown, ", ")));
  }
  Table table{{"op", "scale of the result", "data", "scales of rows, of columns"}, {}};
  for (size_t i = 0; i < by_rule.size(); ++i) {
    CHECK(!by_rule[i].empty());
    for (const auto& [axes, ops] : by_rule[i])
      table.rows.push_back({fmt::format("{}", fmt::join(ops, ", ")), std::string(kWords[i].result),
                            std::string(kWords[i].data), std::string(axes)});
  }
  page.markdown =
      table_markdown(table) + fmt::format("\nWithout a rule: {}.\n", fmt::join(without, ", "));
  return page;
}

}  // namespace octet
