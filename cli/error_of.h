// Message of the program for an exception, and the status that it ends with: one rule for a process
// and for each of several ranks.
#pragma once

#include <exception>

#include "base/error.h"

namespace octet {

// An Error is itself. Memory or threads that the system does not give are Error{device}, with the
// limit that they were held against; the rest is a mistake of ours.
Error error_of(const std::exception& thrown);

}  // namespace octet
