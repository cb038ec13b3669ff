// Every recipe, one file each.
#pragma once

#include "passes/precision/recipe.h"

namespace octet {

// With one scale a tensor.
inline LinearFormats tensor_linears(Dtype forward, Dtype gradient) {
  return {.quantized = true,
          .x = operand_format(forward, false),
          .w = operand_format(forward, false),
          .dy = operand_format(gradient, true)};
}

extern const Recipe kFp32Recipe, kBf16Recipe, kFp16Recipe, kFp8LinearRecipe, kCoatRecipe,
    kCoatFastRecipe, kHif8Recipe, kScalifyFp32Recipe, kScalifyFp16Recipe, kScalifyFp8Recipe,
    kCoatStaticRecipe, kFp8BlockRecipe, kMxfp8Recipe, kFp8LmRecipe, kCoatBlockRecipe, kFp8RowRecipe,
    kUnitScalingRecipe;

}  // namespace octet
