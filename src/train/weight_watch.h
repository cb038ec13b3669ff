// Check that the first steps of a run move its weights: rates that are too small for the weights'
// format, or are lost in their scale, leave every loss as it was.
//
// Looks twice, before the first step and behind the last of the first few, at kSampled elements of
// all weights together, each as f32 with its master; nothing is copied between. Every rank looks at
// its own, at the same steps.
#pragma once

#include <vector>

#include "comm/group.h"
#include "runtime/executor.h"

namespace octet {

class WeightWatch {
 public:
  // Samples the weights that are trained; the arenas and the layout must outlive it.
  WeightWatch(Arenas& arenas, const Layout& layout);

  // The largest root of the mean square, over the elements of a weight, of what they have moved by
  // since the watch was made; of all weights and ranks.
  double moved(Group* group) const;

 private:
  static constexpr int64_t kSampled = int64_t{1} << 15, kPiece = 16;

  // Samples of one weight: the slots that its values are made of, and where pieces begin.
  struct Sampled {
    const Layout::Slot* weight = nullptr;
    const Layout::Slot* master = nullptr;  // nullptr: there is none
    const Layout::Slot* scale = nullptr;   // of an FP16 master
    std::vector<int64_t> first;            // within what this rank holds of it
    std::vector<float> values;
  };
  std::vector<float> read(const Sampled& of) const;

  Arenas& arenas_;
  const Layout& layout_;
  std::vector<Sampled> all_;
};

}  // namespace octet
