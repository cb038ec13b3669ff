// Every model's constant, by nn/models.def.
#pragma once

#include "nn/model.h"

namespace octet {

// The visible list; models() are those of it that write text, which stand first.
std::span<const ModelDef* const> all_models();

// The kind that begins most like an unknown one, by three letters or more; else empty.
std::string_view nearest_kind(std::string_view name);

#define MODEL(kind, constant) extern const ModelDef constant;
#include "nn/models.def"

}  // namespace octet
