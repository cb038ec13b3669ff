#include "passes/lora.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "passes/freeze.h"
#include "passes/precision/policy.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

constexpr std::string_view kWeight = ".weight", kDropout = "dropout:";

std::string_view last_part(std::string_view module) {
  return module.substr(module.rfind('.') + 1);  // npos + 1 is 0
}

// The linear as an adapter sees it; nothing for a node that is no linear of the layers.
std::optional<LoraAdapter> linear_of(const Graph& graph, const Node& node) {
  if (!is_layer_gemm(node)) return std::nullopt;
  const auto& attrs = std::get<GemmAttrs>(node.attrs);
  const GraphInput* weight = graph.input_of(node.in(Gemm::b));
  const bool is_linear = attrs.role == GemmRole::forward && !attrs.trans_a && weight != nullptr &&
                         weight->kind == InputKind::parameter && weight->name.ends_with(kWeight);
  if (!is_linear) return std::nullopt;
  const Shape& shape = graph.type(weight->value).shape;
  const size_t in = attrs.trans_b ? 1 : 0;
  return LoraAdapter{.module = weight->name.substr(0, weight->name.size() - kWeight.size()),
                     .n_in = shape[in],
                     .n_out = shape[1 - in],
                     .out_in = attrs.trans_b};
}

bool is_named(const std::string& target, const LoraAdapter& linear, const Node& node) {
  return matches_pattern(target, linear.module) ||
         matches_pattern(target, last_part(linear.module)) ||
         matches_pattern(target, linear_name(node));
}

bool is_target(const LoraOptions& options, const LoraAdapter& linear, const Node& node) {
  return std::ranges::any_of(
      options.targets, [&](const std::string& target) { return is_named(target, linear, node); });
}

void check_targets(const Graph& graph, const LoraOptions& options) {
  std::set<std::string, std::less<>> names;
  for (const std::string& target : options.targets) {
    bool matches = false;
    for (const Node& node : graph.nodes) {
      const auto linear = linear_of(graph, node);
      if (!linear) continue;
      matches = matches || is_named(target, *linear, node);
      names.emplace(last_part(linear->module));
    }
    if (matches) continue;
    throw Error(ErrorCode::invalid_argument,
                "lora.targets: expected patterns of the layers' linears ({}), got '{}', which "
                "matches none",
                fmt::join(names, ", "), target);
  }
}

// y + ((alpha / rank) drop(x) A^T) B^T.
ValueId adapted(Builder& b, ValueId x, ValueId y, const LoraAdapter& adapter,
                const LoraOptions& options) {
  if (options.dropout > 0) {
    const std::string name = std::string(kDropout) + adapter.module;
    x = b.mul(x, b.input(InputKind::batch, name, b.type(x)));
  }
  const ValueId down =
      b.input(InputKind::parameter, adapter.a(), real_type({options.rank, adapter.n_in}));
  const ValueId up =
      b.input(InputKind::parameter, adapter.b(), real_type({adapter.n_out, options.rank}));
  const ValueId inner = b.gemm(x, down, {.trans_b = true});
  const double scale = options.alpha / static_cast<double>(options.rank);
  return b.emit1(OpCode::gemm, GemmAttrs{.trans_b = true},
                 {scale == 1 ? inner : b.scaled(inner, scale), up, y});
}

}  // namespace

std::vector<LoraAdapter> lora_adapters(const Graph& forward, const LoraOptions& options) {
  CHECK(options.rank >= 1);
  check_targets(forward, options);
  std::vector<LoraAdapter> adapters;
  for (const Node& node : forward.nodes) {
    auto linear = linear_of(forward, node);
    if (linear && is_target(options, *linear, node)) adapters.push_back(std::move(*linear));
  }
  return adapters;
}

std::optional<std::string> dropout_module(std::string_view input) {
  if (!input.starts_with(kDropout)) return std::nullopt;
  return std::string(input.substr(kDropout.size()));
}

Graph add_lora(const Graph& forward, const LoraOptions& options) {
  CHECK(forward.phase == Phase::logical && options.rank >= 1);
  check_targets(forward, options);
  const Graph frozen = freeze_parameters(forward, options.head);
  Rewriter rewriter(frozen);
  Builder& b = rewriter.builder();
  for (const Node& node : forward.nodes) {
    const ValueId y = rewriter.copy(node).front();
    const auto linear = linear_of(forward, node);
    if (!linear || !is_target(options, *linear, node)) continue;
    b.tag = node.tag;
    b.tag.origin += ".lora";
    const ValueId x = rewriter.map(node.in(Gemm::a));
    rewriter.set(node.out(Gemm::y), adapted(b, x, y, *linear, options));
  }
  return rewriter.finish();
}

}  // namespace octet
