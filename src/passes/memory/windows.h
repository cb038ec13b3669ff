// Pictures [B, height, width, C] whose windows convolutions and poolings read.
#pragma once

#include "ir/graph.h"

namespace octet {

// Whether the node cuts places of windows out of a picture, repeats what they are multiplied by
// over its pixels, or moves what was cut.
bool cuts_windows(const Graph& graph, const Node& node);

// The same, or joins them: what unfolds a picture.
bool unfolds(const Graph& graph, const Node& node);

}  // namespace octet
