// The choices that attributes of ops offer, and their names in printed graphs.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/table.h"

namespace octet {

enum class Activation : uint8_t { silu };
enum class GeluKind : uint8_t { erf, tanh };
enum class GemmRole : uint8_t { other, forward, dgrad, wgrad };
// Of all_reduce: the sum, in f32 and in the order of the ranks; or the maximum.
enum class RankReduction : uint8_t { sum, max };
// The rule that makes new weights of gradients (optim/rules/rule.h).
enum class UpdateKind : uint8_t { adamw, sgd, muon, lamb };
enum class PowerMath : uint8_t {
  fast,
  exact
};  // the machine's powers, or the same bits everywhere
enum class RescaleNorm : uint8_t { max, l1, l2 };
enum class Direction : uint8_t { forward, backward };
enum class AttentionMask : uint8_t { full, causal };
// What keys become in functions with a KV cache: none is kept; it grows by those of each call; they
// are written once, and every call reads them.
enum class AttentionKeys : uint8_t { own, appended, fixed };
enum class RopeScaling : uint8_t { none, linear, llama3, dynamic, yarn };

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
constexpr std::string_view enum_name(ScaleRule rule) {
  constexpr std::string_view names[] = {"linear", "power_ceil", "mx_floor"};
  return names[static_cast<int>(rule)];
}
constexpr int enum_count(ScaleRule) {
  return 3;
}
constexpr std::string_view enum_name(Activation) {
  return "silu";
}
constexpr std::string_view enum_name(GeluKind k) {
  return k == GeluKind::erf ? "erf" : "tanh";
}
constexpr std::string_view enum_name(GemmRole r) {
  constexpr std::string_view names[] = {"other", "forward", "dgrad", "wgrad"};
  return names[static_cast<int>(r)];
}
constexpr std::string_view enum_name(RopeScaling s) {
  constexpr std::string_view names[] = {"none", "linear", "llama3", "dynamic", "yarn"};
  return names[static_cast<int>(s)];
}
constexpr std::string_view enum_name(AttentionMask m) {
  return m == AttentionMask::full ? "full" : "causal";
}
constexpr std::string_view enum_name(AttentionKeys k) {
  constexpr std::string_view names[] = {"own", "appended", "fixed"};
  return names[static_cast<int>(k)];
}
constexpr std::string_view enum_name(RescaleNorm n) {
  constexpr std::string_view names[] = {"max", "l1", "l2"};
  return names[static_cast<int>(n)];
}
constexpr std::string_view enum_name(Direction d) {
  return d == Direction::forward ? "forward" : "backward";
}
constexpr std::string_view enum_name(RankReduction r) {
  return r == RankReduction::sum ? "sum" : "max";
}
constexpr int enum_count(RankReduction) {
  return 2;
}
constexpr int enum_count(AttentionMask) {
  return 2;
}
constexpr int enum_count(AttentionKeys) {
  return 3;
}
constexpr int enum_count(RescaleNorm) {
  return 3;
}
constexpr int enum_count(Direction) {
  return 2;
}
constexpr std::string_view enum_name(PowerMath m) {
  return m == PowerMath::fast ? "fast" : "exact";
}
constexpr int enum_count(PowerMath) {
  return 2;
}
constexpr std::string_view enum_name(UpdateKind kind) {
  constexpr std::string_view names[] = {"adamw", "sgd", "muon", "lamb"};
  return names[static_cast<int>(kind)];
}
constexpr int enum_count(UpdateKind) {
  return 4;
}
constexpr int enum_count(Activation) {
  return 1;
}
constexpr int enum_count(GeluKind) {
  return 2;
}
constexpr int enum_count(GemmRole) {
  return 4;
}
constexpr int enum_count(RopeScaling) {
  return 5;
}

}  // namespace octet
