// The page of `octet report`: one HTML file that needs nothing else, with curves of all runs laid
// over each other, a table of results, and what differs between their configurations.
#pragma once

#include <string>
#include <vector>

#include "cli/report_data.h"

namespace octet {

// At least one run. The same text for the same runs.
std::string report_page(const std::vector<RunData>& runs);

}  // namespace octet
