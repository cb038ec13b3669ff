// Which rows a run reads, and in which order.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace octet {

enum class WindowOrder {
  sequential,  // as they lie
  shuffled,    // each pass (epoch) in its own permutation: every sample once
  random,      // independent uniform draws, of windows their starts; a pass has no meaning
};
constexpr std::string_view enum_name(WindowOrder order) {
  constexpr std::string_view names[] = {"sequential", "shuffle", "random"};
  return names[static_cast<int>(order)];
}
constexpr int enum_count(WindowOrder) {
  return 3;
}

enum class DocumentBoundaries {
  ignore,       // documents run on into each other
  mask_labels,  // the first token of a document is no label
  isolate,      // nor does a token see another document, and positions begin anew
};
constexpr std::string_view enum_name(DocumentBoundaries boundaries) {
  constexpr std::string_view names[] = {"ignore", "mask_labels", "isolate"};
  return names[static_cast<int>(boundaries)];
}
constexpr int enum_count(DocumentBoundaries) {
  return 3;
}

enum class TooLong {
  drop,
  truncate,  // its start alone
  split,     // into rows of its own and a rest; the parts do not see each other
};
constexpr std::string_view enum_name(TooLong too_long) {
  constexpr std::string_view names[] = {"drop", "truncate", "split"};
  return names[static_cast<int>(too_long)];
}
constexpr int enum_count(TooLong) {
  return 3;
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
  std::vector<int64_t> lengths = {};  // ascending, in the place of those that buckets choose
  int threads = 1;                    // that decode samples
};

}  // namespace octet
