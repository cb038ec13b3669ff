#include "nn/losses/list.h"

#include <algorithm>

namespace octet {
namespace {

constexpr const LossDef* kLosses[] = {&kNextToken,  &kMaskedToken, &kClasses,     &kSpan,
                                      &kRegression, &kMultiLabel,  &kContrastive, &kPairwise,
                                      &kDpo,        &kIpo,         &kSimpo,       &kOrpo};

}  // namespace

std::span<const LossDef* const> losses() {
  return kLosses;
}

const LossDef* find_loss(std::string_view name) {
  const auto at = std::ranges::find(kLosses, name, &LossDef::name);
  return at == std::end(kLosses) ? nullptr : *at;
}

}  // namespace octet
