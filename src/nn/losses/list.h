// Every loss's constant; list.cpp lists them.
#pragma once

#include "nn/losses/loss.h"

namespace octet {

extern const LossDef kNextToken;

}  // namespace octet
