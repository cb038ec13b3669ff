// Every model's constant; one file per model in this folder. model.cpp lists them in ModelKind's
// order.
#pragma once

#include "nn/model.h"

namespace octet {

// The visible list; models() are those of it that write text, which stand first.
std::span<const ModelDef* const> all_models();

extern const ModelDef kLlama;
extern const ModelDef kOlmo;
extern const ModelDef kGpt2;
extern const ModelDef kMistral;
extern const ModelDef kQwen2;
extern const ModelDef kQwen3;
extern const ModelDef kOlmo2;
extern const ModelDef kSmolLm3;
extern const ModelDef kGptNeox;
extern const ModelDef kVit;
extern const ModelDef kDeit;
extern const ModelDef kBert;
extern const ModelDef kRoberta;
extern const ModelDef kDistilbert;
extern const ModelDef kResnet;
extern const ModelDef kMobilenetV2;
extern const ModelDef kVgg;
extern const ModelDef kDensenet;

}  // namespace octet
