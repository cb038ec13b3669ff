// Which names belong to which scope, decided before a template runs.
//
// Loops, macros, set and filter blocks, {% with %} and {% generation %} open scopes; {% if %} does
// not. A name that a scope assigns anywhere is its own from the start: it begins as a copy of the
// outer one (alias), as the template's variable of that name (resolve), or undefined.
#pragma once

#include "text/jinja/ast.h"

namespace octet::jinja {

// The names that mean something by themselves, in the order of every tree's table.
inline constexpr const char* kSpecialNames[] = {"loop", "caller", "kwargs", "varargs"};
inline constexpr int kLoop = 0, kCaller = 1, kKwargs = 2, kVarargs = 3;

// Fills the plans and the uses_* of every statement. Throws where `loop` is assigned.
void plan_scopes(Tree& tree);

}  // namespace octet::jinja
