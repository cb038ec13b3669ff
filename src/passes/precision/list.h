// Every recipe, one file each.
#pragma once

#include "passes/precision/recipe.h"

namespace octet {

extern const Recipe kFp32Recipe, kBf16Recipe, kFp16Recipe, kFp8LinearRecipe, kCoatRecipe,
    kCoatFastRecipe, kHif8Recipe, kScalifyFp32Recipe, kScalifyFp16Recipe, kScalifyFp8Recipe,
    kCoatStaticRecipe, kFp8BlockRecipe, kMxfp8Recipe, kFp8LmRecipe, kCoatBlockRecipe, kFp8RowRecipe;

}  // namespace octet
