// Every model's constant, by nn/models.def.
#pragma once

#include "nn/model.h"

namespace octet {

// The visible list; models() are those of it that write text, which stand first.
std::span<const ModelDef* const> all_models();

#define MODEL(kind, constant) extern const ModelDef constant;
#include "nn/models.def"

}  // namespace octet
