// The functions that every template may call: range, namespace, dict, cycler, joiner,
// raise_exception, strftime_now.
#pragma once

#include "text/jinja/evaluator.h"

namespace octet::jinja {

void define_globals(Evaluator& evaluator);

// strftime in the C locale, with Python's %f, and %z and %Z empty as of a time without a zone.
std::string format_time(Runtime& runtime, const std::string& format, const std::tm& time);

}  // namespace octet::jinja
