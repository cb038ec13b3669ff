#include "data/mixture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/permutation.h"

namespace octet {
namespace {

bool is_plain(std::span<const StreamPart> parts) {
  return std::ranges::all_of(parts, [](const StreamPart& part) { return part.weight == 1; });
}

}  // namespace

Mixture::Mixture(int64_t n, std::span<const StreamPart> parts, const MixtureOptions& options)
    : n_(n), options_(options) {
  if (is_plain(parts)) return;
  CHECK(parts.back().end == n);
  n_ = 0;
  int64_t first = 0;
  for (const StreamPart& part : parts) {
    const int64_t n_of_part = part.end - first;
    const auto n_read =
        static_cast<int64_t>(std::llround(part.weight * static_cast<double>(n_of_part)));
    const int64_t end = n_ + (n_of_part == 0 ? 0 : std::max<int64_t>(n_read, 1));
    parts_.push_back({.first = first, .n = n_of_part, .begin = n_, .end = end});
    n_ = end;
    first = part.end;
  }
}

int64_t Mixture::item(uint64_t epoch, int64_t i) const {
  const int64_t at = options_.shuffles ? Permutation(n_, options_.seed, epoch)(i) : i;
  if (parts_.empty()) return at;
  const auto part = std::ranges::upper_bound(parts_, at, {}, &Part::end);
  // The part's own count of what it has given, over its own epochs.
  const uint64_t given = epoch * static_cast<uint64_t>(part->end - part->begin) +
                         static_cast<uint64_t>(at - part->begin);
  const auto n = static_cast<uint64_t>(part->n);
  const auto place = static_cast<int64_t>(given % n);
  if (!options_.shuffles) return part->first + place;
  return part->first + Permutation(part->n, options_.seed, given / n)(place);
}

std::string weights_text(std::span<const StreamPart> parts) {
  if (is_plain(parts)) return {};
  std::vector<double> weights;
  for (const StreamPart& part : parts) weights.push_back(part.weight);
  return fmt::format("{}", fmt::join(weights, ", "));
}

}  // namespace octet
