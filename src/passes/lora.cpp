#include "passes/lora.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.h"
#include "passes/freeze.h"
#include "passes/precision/policy.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

constexpr std::string_view kWeight = ".weight", kDropout = "dropout:", kNorm = "lora_norm:";

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
  return matches_pattern(target, linear.module) || matches_pattern(target, linear.part()) ||
         matches_pattern(target, linear_name(node));
}

// The number that all of a text is; nothing of others.
template <typename T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_target(const LoraOptions& options, const LoraAdapter& linear, const Node& node) {
  if (is_kept_frozen(options, linear.weight())) return false;
  return std::ranges::any_of(
      options.targets, [&](const std::string& target) { return is_named(target, linear, node); });
}

std::vector<LoraRank> ranks_of(const LoraOptions& options) {
  std::vector<LoraRank> ranks;
  for (const std::string& text : options.ranks) {
    const auto rank = lora_rank_from_text(text);
    if (!rank) {
      throw Error(ErrorCode::invalid_argument,
                  "lora.ranks: expected PATTERN=RANK or PATTERN=RANK:ALPHA, got '{}'", text);
    }
    ranks.push_back(*rank);
  }
  return ranks;
}

void expect_match(const Graph& graph, const char* key, const std::string& pattern) {
  std::set<std::string, std::less<>> names;
  for (const Node& node : graph.nodes) {
    const auto linear = linear_of(graph, node);
    if (!linear) continue;
    if (is_named(pattern, *linear, node)) return;
    names.emplace(linear->part());
  }
  throw Error(ErrorCode::invalid_argument,
              "{}: expected patterns of the layers' linears ({}), got '{}', which matches none",
              key, fmt::join(names, ", "), pattern);
}

void check_targets(const Graph& graph, const LoraOptions& options) {
  for (const std::string& target : options.targets) expect_match(graph, "lora.targets", target);
  for (const LoraRank& rank : ranks_of(options)) expect_match(graph, "lora.ranks", rank.pattern);
}

// The adapter of a linear; nothing where it has none.
std::optional<LoraAdapter> adapter_of(const Graph& graph, const Node& node,
                                      const LoraOptions& options) {
  auto linear = linear_of(graph, node);
  if (!linear || !is_target(options, *linear, node)) return std::nullopt;
  linear->rank = options.rank;
  linear->alpha = options.alpha;
  for (const LoraRank& own : ranks_of(options)) {
    if (!is_named(own.pattern, *linear, node)) continue;
    linear->rank = own.rank;
    linear->alpha = own.alpha.value_or(options.alpha);
    break;
  }
  linear->scale = lora_scale(options.kind, linear->rank, linear->alpha);
  return linear;
}

// The input of this name, which another use of the linear may have declared before.
ValueId declared(Builder& b, InputKind kind, const std::string& name, const Shape& shape) {
  const GraphInput* known = b.graph().find_input(name);
  return known != nullptr ? known->value : b.input(kind, name, real_type(shape));
}

ValueId parameter(Builder& b, const std::string& name, const Shape& shape) {
  return declared(b, InputKind::parameter, name, shape);
}

struct DoraValues {
  ValueId weight = kNoValue, a = kNoValue, b = kNoValue;
};

// m / |W + s B A| of each output, [out], in f32.
ValueId dora_gain(Builder& b, const DoraValues& of, const LoraAdapter& adapter) {
  const Shape outputs = {adapter.n_out};
  const auto f32 = [&](ValueId x) { return b.unary(OpCode::cast, x); };
  const ValueId m = f32(parameter(b, adapter.magnitude(), outputs));
  const ValueId norm =
      f32(declared(b, InputKind::constant, lora_norm_name(adapter.module), outputs));
  // [out, rank]: W A^T, and B A A^T.
  const ValueId across = b.gemm(of.weight, of.a, {.trans_a = !adapter.out_in, .trans_b = true});
  const ValueId up = f32(of.b), down = f32(of.a);
  const ValueId own = b.gemm(up, b.gemm(down, down, {.trans_b = true}), {});
  const ValueId both = b.add(b.scaled(f32(across), 2), b.scaled(own, adapter.scale));
  const ValueId added = b.scaled(b.reduce_sum(b.mul(up, both), {1}), adapter.scale);
  // norm sqrt(1 + added / norm^2), which is the norm where B is 0.
  const ValueId share = b.div(added, b.mul(norm, norm));
  const ValueId growth = b.maximum(b.plus(share, 1), b.fill_like(share, 1e-12));
  const ValueId all = b.mul(norm, b.unary(OpCode::sqrt, growth));
  return b.div(m, b.unary(OpCode::stop_gradient, all));
}

struct LinearValues {
  ValueId weight = kNoValue, x = kNoValue, y = kNoValue;
};

// y + (scale drop(x) A^T) B^T; of dora times the gain.
ValueId adapted(Builder& b, const LinearValues& linear, const LoraAdapter& adapter,
                const LoraOptions& options) {
  ValueId x = linear.x;
  if (options.dropout > 0) {
    const std::string name = std::string(kDropout) + adapter.module;
    if (b.graph().find_input(name) != nullptr) {
      throw Error(ErrorCode::invalid_argument,
                  "lora.dropout: expected 0 for {}, which the model runs at every step of a text, "
                  "got {}",
                  adapter.module, options.dropout);
    }
    x = b.mul(x, b.input(InputKind::batch, name, b.type(x)));
  }
  const ValueId down = parameter(b, adapter.a(), {adapter.rank, adapter.n_in});
  const ValueId up = parameter(b, adapter.b(), {adapter.n_out, adapter.rank});
  const ValueId inner = b.gemm(x, down, {.trans_b = true});
  const ValueId sum =
      b.emit1(OpCode::gemm, GemmAttrs{.trans_b = true},
              {adapter.scale == 1 ? inner : b.scaled(inner, adapter.scale), up, linear.y});
  if (options.kind != LoraKind::dora) return sum;
  const ValueId gain = dora_gain(b, {linear.weight, down, up}, adapter);
  return b.mul(sum, b.broadcast_along(gain, b.shape(sum), 0));
}

}  // namespace

bool is_kept_frozen(const LoraOptions& options, std::string_view parameter) {
  return std::ranges::any_of(options.freeze, [&](const std::string& pattern) {
    return matches_pattern(pattern, parameter);
  });
}

double lora_scale(LoraKind kind, int64_t rank, double alpha) {
  const auto n = static_cast<double>(rank);
  return alpha / (kind == LoraKind::rslora ? std::sqrt(n) : n);
}

std::optional<LoraRank> lora_rank_from_text(std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) return std::nullopt;
  LoraRank result{.pattern = std::string(text.substr(0, equals))};
  const std::string_view value = text.substr(equals + 1);
  const size_t colon = value.find(':');
  const auto rank = number_of<int64_t>(value.substr(0, colon));
  if (!rank || *rank < 1 || *rank > kMaxLoraRank) return std::nullopt;
  result.rank = *rank;
  if (colon == std::string_view::npos) return result;
  result.alpha = number_of<double>(value.substr(colon + 1));
  const bool is_scale = result.alpha && std::isfinite(*result.alpha) && *result.alpha > 0;
  return is_scale ? std::optional(result) : std::nullopt;
}

std::vector<LoraAdapter> lora_adapters(const Graph& forward, const LoraOptions& options) {
  CHECK(options.rank >= 1);
  check_targets(forward, options);
  std::vector<LoraAdapter> adapters;
  for (const Node& node : forward.nodes) {
    auto adapter = adapter_of(forward, node, options);
    if (adapter && std::ranges::count(adapters, adapter->module, &LoraAdapter::module) == 0)
      adapters.push_back(std::move(*adapter));
  }
  return adapters;
}

std::string lora_norm_name(std::string_view module) {
  return std::string(kNorm).append(module);
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
    const auto adapter = adapter_of(forward, node, options);
    if (!adapter) continue;
    b.tag = node.tag;
    b.tag.origin += ".lora";
    const LinearValues linear{
        .weight = rewriter.map(node.in(Gemm::b)), .x = rewriter.map(node.in(Gemm::a)), .y = y};
    rewriter.set(node.out(Gemm::y), adapted(b, linear, *adapter, options));
  }
  return rewriter.finish();
}

}  // namespace octet
