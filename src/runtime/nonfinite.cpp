#include "runtime/nonfinite.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "formats/codec.h"
#include "ir/op_def.h"

namespace octet {
namespace {

enum class NumberClass : uint8_t { finite, nan, inf };

NumberClass class_of(float x) {
  return std::isnan(x) ? NumberClass::nan : std::isinf(x) ? NumberClass::inf : NumberClass::finite;
}

template <typename Code, typename Classify>
NonfiniteCount count(std::span<const std::byte> bytes, const Classify& classify) {
  NonfiniteCount result;
  const auto n_elems = static_cast<int64_t>(bytes.size() / sizeof(Code));
  for (int64_t i = 0; i < n_elems; ++i) {
    Code code;
    std::memcpy(&code, bytes.data() + static_cast<size_t>(i) * sizeof(Code), sizeof(Code));
    const NumberClass kind = classify(code);
    if (kind == NumberClass::finite) continue;
    if (result.first < 0) result.first = i;
    ++(kind == NumberClass::nan ? result.n_nan : result.n_inf);
  }
  return result;
}

// An IEEE-like code of 16 bits is not finite where all bits of its exponent are set.
NonfiniteCount count_16_bits(std::span<const std::byte> bytes, uint16_t exponent_mask) {
  return count<uint16_t>(bytes, [exponent_mask](uint16_t code) {
    if ((code & exponent_mask) != exponent_mask) return NumberClass::finite;
    const bool is_inf = (code & 0x7FFF) == exponent_mask;
    return is_inf ? NumberClass::inf : NumberClass::nan;
  });
}

NonfiniteCount count_8_bits(std::span<const std::byte> bytes, Dtype dtype) {
  std::array<NumberClass, 256> classes{};
  for (uint32_t code = 0; code < 256; ++code) classes[code] = class_of(decode(dtype, code));
  return count<uint8_t>(bytes, [&classes](uint8_t code) { return classes[code]; });
}

// A flag says by being set that something was not finite.
bool is_flag(const Node& node, const TensorType& type) {
  const bool compares =
      op_def(node.op).scale == op_def(OpCode::less).scale || node.op == OpCode::is_finite;
  return type.dtype == Dtype::boolean && type.shape.empty() && !compares;
}

std::string name_of(const Plan& plan, ValueId id) {
  if (const GraphInput* input = plan.graph.input_of(id)) return input->name;
  for (const GraphOutput& output : plan.graph.outputs) {
    if (output.value == id) return output.name;
  }
  return fmt::format("%{}", id);
}

std::string place_text(const Tag& tag) {
  constexpr std::string_view passes[] = {"forward pass", "backward pass", "update"};
  std::string text(passes[static_cast<int>(tag.role)]);
  if (tag.layer >= 0) text += " of " + layer_text(tag);
  if (!tag.origin.empty()) text += ", " + tag.origin;
  return text;
}

std::string count_text(const NonfiniteSite& site) {
  if (site.n_inf == 0) return fmt::format("{} NaN", site.n_nan);
  if (site.n_nan == 0) return fmt::format("{} Inf", site.n_inf);
  return fmt::format("{} NaN and {} Inf", site.n_nan, site.n_inf);
}

}  // namespace

std::string to_string(const NonfiniteSite& site) {
  const std::string op = fmt::format("{} in the {}", site.op, place_text(site.tag));
  const std::string tensor = fmt::format("{} {}", site.tensor, to_string(site.type));
  const std::string launch =
      fmt::format("launch {} of {}, {}", site.plan_step, site.function, site.kernel);
  switch (site.cause) {
    case NonfiniteSite::Cause::result:
      return fmt::format("{}, made {} with {}, the first at {} ({})", op, tensor, count_text(site),
                         site.first, launch);
    case NonfiniteSite::Cause::input:
      return fmt::format("{} held {}, the first at {}, before {}, read it ({})", tensor,
                         count_text(site), site.first, op, launch);
    case NonfiniteSite::Cause::flag:
      break;
  }
  return fmt::format("{}, met a value that is not finite and flagged it in {} ({})", op, tensor,
                     launch);
}

NonfiniteCount count_nonfinite(Dtype dtype, std::span<const std::byte> bytes) {
  if (!is_float(dtype) || dtype == Dtype::real) return {};
  if (dtype == Dtype::f32) return count<float>(bytes, class_of);
  if (dtype == Dtype::bf16) return count_16_bits(bytes, 0x7F80);
  if (dtype == Dtype::fp16) return count_16_bits(bytes, 0x7C00);
  return count_8_bits(bytes, dtype);
}

StepObserver NonfiniteWatch::observer() {
  return [this](const Plan& plan, const PlanStep& step, bool before) { look(plan, step, before); };
}

void NonfiniteWatch::look(const Plan& plan, const PlanStep& step, bool before) {
  if (site_) return;
  if (before && &step == plan.steps.data()) seen_.clear();
  if (!before && step.kernel.has_two_phases && !step.is_second_phase) return;  // half of a result
  const Node& node = plan.graph.node(step.node);
  for (const ValueId id : before ? node.operands : node.results) {
    if (id == kNoValue || site_) continue;
    before ? look_at_input(plan, step, id) : look_at_result(plan, step, id);
  }
}

void NonfiniteWatch::look_at_input(const Plan& plan, const PlanStep& step, ValueId id) {
  if (plan.graph.input_of(id) == nullptr || !seen_.insert(id).second) return;
  const NonfiniteCount n = count_nonfinite(plan.graph.type(id).dtype, arenas_.read(plan, id));
  if (!n.any()) return;
  found(plan, step,
        {.cause = NonfiniteSite::Cause::input,
         .tensor = name_of(plan, id),
         .type = plan.graph.type(id),
         .n_nan = n.n_nan,
         .n_inf = n.n_inf,
         .first = n.first});
}

void NonfiniteWatch::look_at_result(const Plan& plan, const PlanStep& step, ValueId id) {
  const TensorType& type = plan.graph.type(id);
  const Node& node = plan.graph.node(step.node);
  if (is_flag(node, type)) {
    if (arenas_.read(plan, id)[0] == std::byte{0}) return;
    return found(plan, step,
                 {.cause = NonfiniteSite::Cause::flag, .tensor = name_of(plan, id), .type = type});
  }
  const NonfiniteCount n = count_nonfinite(type.dtype, arenas_.read(plan, id));
  if (!n.any()) return;
  found(plan, step,
        {.tensor = name_of(plan, id),
         .type = type,
         .n_nan = n.n_nan,
         .n_inf = n.n_inf,
         .first = n.first});
}

void NonfiniteWatch::found(const Plan& plan, const PlanStep& step, NonfiniteSite site) {
  const Node& node = plan.graph.node(step.node);
  site.function = plan.graph.name;
  site.plan_step = static_cast<int>(&step - plan.steps.data());
  site.op = op_def(node.op).name;
  site.kernel = step.kernel.name;
  site.tag = node.tag;
  site_ = std::move(site);
}

}  // namespace octet
