// Table of docs/kernels.md: the forms of attention that each row of a back end takes.
#pragma once

#include <string>

#include "plan/target.h"

namespace octet {

// A table in Markdown, made by asking the rows; none of the reference's, which take all.
std::string attention_table(const Target& target);

}  // namespace octet
