// Every kind of operation, in the order of the list in ir/ops/ops.def; the choices that attributes
// of ops offer, and their names in printed graphs.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/named_enum.h"
#include "formats/table.h"

namespace octet {

enum class OpCode : uint8_t {
#define OP(name, ...) name,
#include "ir/ops/ops.def"
};
inline constexpr int kOpCount = 0
#define OP(...) +1
#include "ir/ops/ops.def"
    ;

enum class Activation : uint8_t { silu };
enum class GeluKind : uint8_t { erf, tanh };
enum class GemmRole : uint8_t { other, forward, dgrad, wgrad };
// Reduction of all_reduce: the sum, in f32 and in the order of the ranks; or the maximum.
enum class RankReduction : uint8_t { sum, max };
// The rule that makes new weights of gradients (optim/rules/rule.h).
enum class UpdateKind : uint8_t { adamw, sgd, muon, lamb };
enum class PowerMath : uint8_t {
  fast,
  exact
};  // the machine's powers, or the same bits everywhere
enum class RescaleNorm : uint8_t { max, l1, l2 };
enum class WindowReduction : uint8_t { sum, max, min };
enum class Direction : uint8_t { forward, backward };
enum class AttentionMask : uint8_t { full, causal };
// Keys in functions with a KV cache: none is kept; it grows by those of each call; they are written
// once, and every call reads them.
enum class AttentionKeys : uint8_t { own, appended, fixed };
enum class RopeScaling : uint8_t { none, linear, llama3, dynamic, yarn, longrope };

constexpr std::string_view enum_name(Dtype dtype) {
  return dtype_name(dtype);
}
constexpr int enum_count(Dtype) {
  return kDtypeCount;
}
constexpr std::string_view enum_name(Rounding rounding) {
  return rounding_name(rounding);
}
constexpr int enum_count(Rounding) {
  return static_cast<int>(kRoundingNames.size());
}
constexpr auto value_names(ScaleRule) {
  return name_list("linear", "power_ceil", "mx_floor");
}
constexpr auto value_names(Activation) {
  return name_list("silu");
}
constexpr auto value_names(GeluKind) {
  return name_list("erf", "tanh");
}
constexpr auto value_names(GemmRole) {
  return name_list("other", "forward", "dgrad", "wgrad");
}
constexpr auto value_names(RopeScaling) {
  return name_list("none", "linear", "llama3", "dynamic", "yarn", "longrope");
}
constexpr auto value_names(AttentionMask) {
  return name_list("full", "causal");
}
constexpr auto value_names(AttentionKeys) {
  return name_list("own", "appended", "fixed");
}
constexpr auto value_names(RescaleNorm) {
  return name_list("max", "l1", "l2");
}
constexpr auto value_names(WindowReduction) {
  return name_list("sum", "max", "min");
}
constexpr auto value_names(Direction) {
  return name_list("forward", "backward");
}
constexpr auto value_names(RankReduction) {
  return name_list("sum", "max");
}
constexpr auto value_names(PowerMath) {
  return name_list("fast", "exact");
}
constexpr auto value_names(UpdateKind) {
  return name_list("adamw", "sgd", "muon", "lamb");
}

}  // namespace octet
