// Every loss's constant; list.cpp lists them.
#pragma once

#include "nn/losses/loss.h"

namespace octet {

extern const LossDef kNextToken;
extern const LossDef kMaskedToken;
extern const LossDef kClasses;
extern const LossDef kSpan;
extern const LossDef kRegression;
extern const LossDef kMultiLabel;
extern const LossDef kContrastive;
extern const LossDef kPairwise;
extern const LossDef kDpo;
extern const LossDef kIpo;
extern const LossDef kSimpo;
extern const LossDef kOrpo;

}  // namespace octet
