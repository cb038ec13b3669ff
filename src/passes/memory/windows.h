// Pictures [B, height, width, C] whose windows poolings read.
#pragma once

#include "ir/graph.h"

namespace octet {

// True if the node cuts places of windows out of a picture, or moves what was cut.
bool cuts_windows(const Graph& graph, const Node& node);

}  // namespace octet
