#include "train/weight_watch.h"

#include <algorithm>
#include <cmath>

#include "formats/arrays.h"
#include "ir/fixed_scale.h"
#include "ir/states.h"
#include "math/master.h"
#include "optim/rules/rule.h"

namespace octet {

WeightWatch::WeightWatch(Arenas& arenas, const Layout& layout) : arenas_(arenas), layout_(layout) {
  for (const auto& [name, slot] : layout.slots) {
    if (slot.kind != InputKind::parameter) continue;
    Sampled& one = all_.emplace_back();
    one.weight = &slot;
    one.master = layout.find(StateUse::master_remainder, name);
    if (one.master == nullptr) one.master = layout.find(StateUse::master, name);
    // FP16 masters have a scale: weights that are rounded from them twice move without a step.
    if (one.master != nullptr && one.master->type.dtype == Dtype::fp16)
      one.scale = layout.find(StateUse::fixed_scale, name + std::string(kScaleOfMaster));
  }
  const int64_t most = kSampled / kPiece / std::max<int64_t>(std::ssize(all_), 1);
  for (Sampled& one : all_) {
    const int64_t n = layout.range_of(one.master != nullptr ? *one.master : *one.weight).count;
    const int64_t n_pieces = std::clamp<int64_t>(n / kPiece, 1, std::max<int64_t>(most, 4));
    for (int64_t i = 0; i < n_pieces && n > 0; ++i)
      one.first.push_back(std::min(i * (n / n_pieces), std::max<int64_t>(n - kPiece, 0)));
    one.values = read(one);
  }
}

std::vector<float> WeightWatch::read(const Sampled& of) const {
  const Layout::Slot& held = of.master != nullptr ? *of.master : *of.weight;
  const auto range = layout_.range_of(held);
  // A whole weight beside a shard of its master.
  const int64_t before = layout_.range_of(*of.weight).first;
  const auto copy = [&](const Layout::Slot& slot, int64_t first, int64_t n, void* to) {
    const int64_t width = bytes_of(slot.type.dtype, 1);
    arenas_.device().copy_out(to, arenas_.arena(slot.arena) + slot.offset + first * width,
                              n * width);
  };
  float scale = 1;
  if (of.scale != nullptr) {
    copy(*of.scale, 0, 1, &scale);
    if (scale == 0) scale = kFirstMasterScale;
  }
  std::vector<float> values;
  for (const int64_t first : of.first) {
    const int64_t n = std::min(kPiece, range.count - first);
    if (held.type.dtype == Dtype::i16) {
      uint16_t weight[kPiece];
      int16_t rest[kPiece];
      copy(*of.weight, range.first - before + first, n, weight);
      copy(held, first, n, rest);
      for (int64_t i = 0; i < n; ++i) values.push_back(join_master({weight[i], rest[i]}));
      continue;
    }
    std::byte codes[kPiece * sizeof(float)];
    copy(held, first, n, codes);
    const auto n_bytes = static_cast<size_t>(bytes_of(held.type.dtype, n));
    for (const float x : decode_values(held.type.dtype, std::span(codes).first(n_bytes)))
      values.push_back(x * scale);
  }
  return values;
}

double WeightWatch::moved(Group* group) const {
  double most = 0;
  for (const Sampled& one : all_) {
    const std::vector<float> now = read(one);
    double sum = 0;
    for (size_t i = 0; i < now.size(); ++i) {
      const double gap = static_cast<double>(now[i]) - static_cast<double>(one.values[i]);
      sum += gap * gap;
    }
    if (!now.empty()) most = std::max(most, std::sqrt(sum / static_cast<double>(now.size())));
  }
  for (const double of_rank : gather_value(group, most)) most = std::max(most, of_rank);
  return most;
}

}  // namespace octet
