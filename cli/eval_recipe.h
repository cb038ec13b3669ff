// The numerics of `octet eval`: a run's own, and what --set recipe.* says over them.
#pragma once

#include <string>
#include <vector>

#include "infer/model_source.h"

namespace octet {

// The source with `recipe` in the place of its own: with the run's options where it is the run's
// recipe, and with each --set over them; recipe.override.PATTERN=.. stands behind the run's lines,
// recipe.override=.. in their place. Throws Error{invalid_argument} for keys that say nothing to an
// evaluation.
ModelSource source_with_recipe(const ModelSource& source, const std::string& recipe,
                               const std::vector<std::string>& sets);

}  // namespace octet
