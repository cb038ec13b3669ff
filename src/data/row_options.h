// Which rows a run reads, and in which order.
#pragma once

#include <cstdint>
#include <vector>

#include "base/named_enum.h"

namespace octet {

enum class WindowOrder {
  sequential,  // as they lie
  shuffled,    // each pass (epoch) in its own permutation: every sample once
  random,      // independent uniform draws, of windows their starts; a pass has no meaning
};
constexpr auto value_names(WindowOrder) {
  return name_list("sequential", "shuffle", "random");
}

enum class DocumentBoundaries {
  ignore,       // documents run on into each other
  mask_labels,  // the first token of a document is no label
  isolate,      // nor does a token see another document, and positions begin anew
};
constexpr auto value_names(DocumentBoundaries) {
  return name_list("ignore", "mask_labels", "isolate");
}

enum class TooLong {
  drop,
  truncate,  // its start alone
  split,     // into rows of its own and a rest; the parts do not see each other
};
constexpr auto value_names(TooLong) {
  return name_list("drop", "truncate", "split");
}

enum class Packing {
  none,       // samples take whole rows: windows of a text, pictures, pairs
  single,     // a document a row
  first_fit,  // as many as fit
};

struct RowOptions {
  int64_t seq = 0;  // tokens a row
  WindowOrder order = WindowOrder::shuffled;
  DocumentBoundaries boundaries = DocumentBoundaries::ignore;
  uint64_t seed = 0;
  Packing packing = Packing::none;
  TooLong too_long = TooLong::drop;
  int64_t buckets = 1;                // lengths of rows, with Packing::single
  int64_t step_rows = 1;              // rows of a step, which have one length
  int64_t step_batches = 1;           // of a step, where buckets are of two texts
  std::vector<int64_t> lengths = {};  // ascending, in the place of those that buckets choose
  int threads = 1;                    // that decode samples
};

}  // namespace octet
