// Choices of keys: enums of those whom the choice is for, which are included here, and the
// configuration's own.
#pragma once

#include <cstdint>

#include "base/arithmetic.h"
#include "base/named_enum.h"
#include "base/rank_transport.h"
#include "data/chat_records.h"
#include "data/images/transforms.h"
#include "data/row_options.h"
#include "data/text_records.h"
#include "ir/attr_enums.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "passes/loss_scale.h"
#include "passes/memory/recompute.h"
#include "passes/parallel/options.h"
#include "passes/precision/policy.h"
#include "passes/precision/recipe.h"
#include "passes/precision/store_frozen.h"

namespace octet {

// recipe.activation_scale (RecipeOptions::quantizes_linear_outputs)
enum class ActivationScale : uint8_t { group, tensor };
constexpr auto value_names(ActivationScale) {
  return name_list("group", "tensor");
}

// recipe.mx_scale (RecipeOptions::mx_rule)
enum class MxScale : uint8_t { ceil, floor };
constexpr auto value_names(MxScale) {
  return name_list("ceil", "floor");
}

// recipe.weight_rms (train/run_setup.h)
enum class WeightRms : uint8_t { loaded, init };
constexpr auto value_names(WeightRms) {
  return name_list("loaded", "init");
}

// train.on_audit
enum class OnAudit : uint8_t { warn, stop };
constexpr auto value_names(OnAudit) {
  return name_list("warn", "stop");
}

// train.export: nothing, a model in one of ExportDtype's types (infer/export.h), adapters alone.
enum class ExportAs : uint8_t { none, as_stored, bf16, f32, fp8_block, fp8_tensor, hif8, adapter };
constexpr auto value_names(ExportAs) {
  return name_list("none", "as-stored", "bf16", "f32", "fp8-block", "fp8-tensor", "hif8",
                   "adapter");
}

}  // namespace octet
