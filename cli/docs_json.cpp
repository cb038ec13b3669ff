#include "cli/docs_json.h"

#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "cli/kernels_page.h"
#include "cli/scale_rules_page.h"
#include "cli/types_page.h"
#include "config/report.h"
#include "config/table.h"
#include "nn/list.h"
#include "nn/model.h"

namespace octet {
namespace {

nlohmann::ordered_json keys_of(const ModelDef& model) {
  nlohmann::ordered_json keys = nlohmann::ordered_json::array();
  for (const HfKey& key : hf_keys_of(model))
    keys.push_back({{"key", key.key}, {"field", key.field}});
  return keys;
}

}  // namespace

std::string configuration_json() {
  nlohmann::ordered_json keys = nlohmann::ordered_json::array();
  const auto defaults = config_values(RunConfig{});
  for (size_t i = 0; const ConfigRow& row : config_rows()) {
    keys.push_back({{"key", row.path},
                    {"default", defaults[i++].second},
                    {"accepts", expected_text(row)},
                    {"unit", row.unit},
                    {"on_resume", on_resume_text(row.on_resume)},
                    {"meaning", row.help}});
  }
  return json_text(keys);
}

std::string models_json() {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const ModelDef* model : all_models()) {
    all.push_back({{"model_type", model->name},
                   {"class", model->architecture},
                   {"positions", model->positions == Positions::rotary ? "rotary" : "learned"},
                   {"mlp", model->mlp == MlpKind::gated ? "SwiGLU" : "GELU"},
                   {"keys", keys_of(*model)}});
  }
  return json_text(all);
}

std::string scale_rules_json() {
  nlohmann::ordered_json ops = nlohmann::ordered_json::array();
  for (const OpScaleRule& rule : scale_rules()) {
    const bool has_rule = !rule.scale.empty();
    ops.push_back(
        {{"op", rule.op},
         {"operands", rule.operands},
         {"as_values", rule.as_values},
         {"scale", has_rule ? nlohmann::ordered_json(rule.scale) : nlohmann::ordered_json()},
         {"data", has_rule ? nlohmann::ordered_json(rule.data) : nlohmann::ordered_json()}});
  }
  return json_text(ops);
}

std::string quantized_types_json() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const auto use = [](const TypeUse& of) {
    return nlohmann::ordered_json{{"cpu", of.cpu}, {"gpu", of.gpu}};
  };
  for (const QuantizedTypeRow& row : quantized_types()) {
    rows.push_back({{"type", row.type},
                    {"gemm", use(row.gemm)},
                    {"norm", use(row.norm)},
                    {"activation", use(row.activation)},
                    {"moment", use(row.moment)},
                    {"dequantize", use(row.dequantize)}});
  }
  return json_text(rows);
}

std::string kernels_json() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const KernelRowUse& use : kernel_row_uses()) {
    rows.push_back({{"backend", use.backend},
                    {"op", use.op},
                    {"row", use.row},
                    {"speed", use.speed},
                    {"types", use.types},
                    {"bytes", use.bytes},
                    {"flops", use.flops}});
  }
  return json_text(rows);
}

}  // namespace octet
