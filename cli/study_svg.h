// Figures of studies as SVG texts.
#pragma once

#include <string>

#include "study/study.h"

namespace octet {

// A line chart that stands alone, with title, axes, units and legend; ten colours, of
// which colour-blind readers tell eight apart, and dashes. Over names of x dots stand alone. Values
// that are not finite, on a logarithmic scale also those that are not positive, leave a gap and a
// mark at the top. Of more than 28 names of x some are shown, each by its end. What is not UTF-8
// becomes U+FFFD, control characters blanks.
std::string figure_svg(const Figure& figure);

}  // namespace octet
