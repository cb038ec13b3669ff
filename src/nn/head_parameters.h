// Parameters that a task's head adds to a model.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "nn/model.h"

namespace octet {

// The names of the parameters that a model with heads has without one, below its features.
std::set<std::string> feature_parameters(const ModelSpec& spec);

// The names of the parameters that a classifier, or a head of spans or numbers, has beside the
// features it reads; none of other heads, of which masked is a part of the pretrained model.
std::vector<std::string> head_parameters(const ModelSpec& spec);

}  // namespace octet
