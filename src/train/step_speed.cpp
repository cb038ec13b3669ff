#include "train/step_speed.h"

#include <fmt/format.h>

#include <map>
#include <string>

#include "ir/attrs.h"
#include "plan/kernel_row.h"

namespace octet {
namespace {

struct MeasuredRates {
  double memory = 0, gemm_f32 = 0, gemm_bf16 = 0, gemm_e4m3 = 0, launch = 0;
};

constexpr MeasuredRates measured_rates() {
  MeasuredRates rates;
#define OCTET_RATE(name, value) rates.name = value;
#define OCTET_ROW(row, share)
#include "train/card_rows.def"
#undef OCTET_RATE
#undef OCTET_ROW
  return rates;
}

const std::map<std::string, double, std::less<>>& measured_shares() {
  static const std::map<std::string, double, std::less<>> shares = {
#define OCTET_RATE(name, value)
#define OCTET_ROW(row, share) {row, share},
#include "train/card_rows.def"
#undef OCTET_RATE
#undef OCTET_ROW
  };
  return shares;
}

// The key as tools/row_shares.py names rows: attention's kernels differ by the width of a head.
std::string share_key(const Plan& plan, const PlanStep& step) {
  const Node& node = plan.graph.node(step.node);
  std::string key = row_key(*step.kernel.row);
  if (node.op == OpCode::attention || node.op == OpCode::attention_grad)
    key += fmt::format(" {}", std::get<AttentionAttrs>(node.attrs).head_dim);
  return key;
}

double plan_seconds(const Plan& plan, const CardRates& card) {
  double seconds = 0;
  for (const PlanStep& step : plan.steps) {
    double share = card.other_share;
    if (step.kernel.row != nullptr) {
      const auto found = measured_shares().find(share_key(plan, step));
      if (found != measured_shares().end()) share = found->second;
    }
    const double floor = floor_seconds(plan.graph, plan.graph.node(step.node), card.ceilings);
    seconds += card.launch_s + floor / share;
  }
  return seconds;
}

}  // namespace

const CardRates& measured_card() {
  static constexpr MeasuredRates rates = measured_rates();
  static constexpr CardRates card = {
      .name = "NVIDIA H200",
      .ceilings = {rates.memory, rates.gemm_f32, rates.gemm_bf16, rates.gemm_e4m3},
      .launch_s = rates.launch,
      .other_share = 0.7};
  return card;
}

double predicted_seconds(Program& program, const CardRates& card) {
  double seconds = 0;
  for (const std::string_view name : program.train_functions()) {
    const int64_t n = name == function::micro_next ? program.options().accumulate - 1 : 1;
    seconds += static_cast<double>(n) * plan_seconds(program.plan(name), card);
  }
  return seconds;
}

}  // namespace octet
