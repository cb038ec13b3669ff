#include "cli/docs_json.h"

#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "cli/scale_rules_page.h"
#include "config/report.h"
#include "config/table.h"
#include "nn/model.h"

namespace octet {
namespace {

using Json = nlohmann::ordered_json;

Json keys_of(const ModelDef& model) {
  Json keys = Json::array();
  for (const HfKey& key : hf_keys_of(model))
    keys.push_back({{"key", key.key}, {"field", key.field}});
  return keys;
}

}  // namespace

std::string configuration_json() {
  Json keys = Json::array();
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
  Json all = Json::array();
  for (const ModelDef* model : models()) {
    all.push_back({{"model_type", model->name},
                   {"class", model->architecture},
                   {"positions", model->positions == Positions::rotary ? "rotary" : "learned"},
                   {"mlp", model->mlp == MlpKind::gated ? "SwiGLU" : "GELU"},
                   {"keys", keys_of(*model)}});
  }
  return json_text(all);
}

std::string scale_rules_json() {
  Json ops = Json::array();
  for (const OpScaleRule& rule : scale_rules()) {
    const bool has_rule = !rule.scale.empty();
    ops.push_back({{"op", rule.op},
                   {"operands", rule.operands},
                   {"as_values", rule.as_values},
                   {"scale", has_rule ? Json(rule.scale) : Json()},
                   {"data", has_rule ? Json(rule.data) : Json()}});
  }
  return json_text(ops);
}

}  // namespace octet
