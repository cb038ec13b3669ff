#include "infer/fake_quantize_inputs.h"

#include <set>

#include "base/error.h"
#include "formats/full_int8.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

class InputQuantizer {
 public:
  InputQuantizer(const Graph& graph, const FakeQuantizeInputs& options)
      : rewriter_(graph), b_(rewriter_.builder()), options_(options) {}

  Graph run() {
    for (const Node& node : rewriter_.from().nodes) {
      if (const std::string weight = weight_of(node); options_.linears.contains(weight)) {
        rewrite(node, {{Gemm::a, take(options_.linears, weight)}});
      } else if (is_residual_sum(node) && !options_.residuals.empty()) {
        residual(node);
      } else {
        rewriter_.copy(node);
      }
    }
    check(options_.linears);
    check(options_.residuals);
    return rewriter_.finish();
  }

 private:
  using Quantizers = std::map<std::string, ActivationQuantizer>;

  // Also of a weight that is kept in another type (store_frozen.h), and widened before the GEMM.
  std::string weight_of(const Node& node) const {
    if (node.op != OpCode::gemm) return "";
    const Graph& from = rewriter_.from();
    ValueId weight = node.in(Gemm::b);
    if (const Node* widens = from.producer(weight)) {
      if (widens->op != OpCode::dequantize && widens->op != OpCode::cast) return "";
      weight = widens->operands.front();
    }
    const GraphInput* input = from.input_of(weight);
    return input == nullptr ? "" : input->name;
  }

  const ActivationQuantizer& take(const Quantizers& all, const std::string& name) {
    used_.insert(name);
    return all.at(name);
  }

  void check(const Quantizers& all) const {
    for (const auto& [name, quantizer] : all) {
      if (!used_.contains(name)) {
        throw Error(ErrorCode::invalid_argument,
                    "[fake_quantize_inputs] expected a linear or residual sum of the model, got "
                    "'{}'",
                    name);
      }
    }
  }

  void residual(const Node& node) {
    const int index = n_residuals_[node.tag.layer]++;
    std::map<size_t, ActivationQuantizer> operands;
    for (const auto& [slot, letter] : {std::pair(Binary::a, 'a'), std::pair(Binary::b, 'b')}) {
      const std::string name = residual_name(layer_name(node.tag), index, letter);
      if (options_.residuals.contains(name)) operands[slot] = take(options_.residuals, name);
    }
    rewrite(node, operands);
  }

  void rewrite(const Node& node, const std::map<size_t, ActivationQuantizer>& quantized) {
    ValueIds operands = rewriter_.map(node.operands);
    b_.tag = node.tag;
    for (const auto& [slot, quantizer] : quantized) {
      operands[slot] = quantized_value(operands[slot], quantizer);
    }
    rewriter_.replace(node, node.op, node.attrs, operands);
  }

  // Each once for all that read it.
  ValueId quantized_value(ValueId x, const ActivationQuantizer& how) {
    for (const auto& [of, quantizer, value] : made_) {
      if (of == x && quantizer == how) return value;
    }
    const ValueId y = how.group > 0 && !how.scale ? in_groups(x, how) : per_tensor(x, how);
    made_.push_back({x, how, y});
    return y;
  }

  ValueId in_groups(ValueId x, const ActivationQuantizer& how) {
    return b_.emit1(
        OpCode::fake_quantize,
        FakeQuantizeAttrs{
            .dtype = how.dtype, .target = how.target, .group = how.group, .power = how.power},
        {x});
  }

  ValueId per_tensor(ValueId x, const ActivationQuantizer& how) {
    QuantizeAttrs of_codes{.target = how.target};
    if (how.scale && how.dtype == Dtype::int8) {
      // Values beyond the calibrated range are -128 where servers run it. No other pass takes these
      // attributes for its own.
      of_codes.target = kFullInt8Target;
      of_codes.rounding = Rounding::rne;
    }
    ValueId scale = kNoValue;
    if (how.scale) {
      const FillAttrs value{.shape = {}, .value = static_cast<double>(*how.scale)};
      scale = b_.emit_typed(OpCode::fill, value, {}, {Dtype::f32})[0];
    } else {
      scale = b_.emit1(OpCode::quant_scale, scale_attrs(of_codes),
                       {b_.emit(OpCode::amax, NoAttrs{}, {x})[AmaxOp::amax]});
    }
    const ValueId q = b_.emit_typed(OpCode::quantize, of_codes, {x, scale}, {how.dtype})[0];
    const Dtype dtype = b_.type(x).dtype;
    return b_.dequantize(q, scale, dtype);
  }

  struct Made {
    ValueId of;
    ActivationQuantizer quantizer;
    ValueId value;
  };

  Rewriter rewriter_;
  Builder& b_;
  const FakeQuantizeInputs& options_;
  std::set<std::string> used_;
  std::map<int, int> n_residuals_;  // so far, by layer
  std::vector<Made> made_;
};

}  // namespace

std::string residual_name(std::string_view layer, int index, char operand) {
  return fmt::format("{}.residual.{}.{}", layer, index, operand);
}

bool is_residual_sum(const Node& node) {
  return node.op == OpCode::add && node.tag.layer >= 0 && node.tag.origin == "residual" &&
         node.tag.role == Role::forward;
}

Graph fake_quantize_inputs(const Graph& graph, const FakeQuantizeInputs& options) {
  CHECK(graph.phase == Phase::typed);
  return InputQuantizer(graph, options).run();
}

}  // namespace octet
