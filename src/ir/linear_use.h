// Names of a linear's uses. A graph that runs one linear more than once, as in each step of a
// recurrence, reads its weight in as many GEMMs. The first has the linear's name as its origin
// (Tag::origin), those behind it "NAME@1", "NAME@2", ..., and the gradients of each the origin of
// their own, so that passes know which gradient belongs to which input.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace octet {

inline std::string use_origin(std::string_view linear, int64_t use) {
  return use == 0 ? std::string(linear) : fmt::format("{}@{}", linear, use);
}

// The linear's name, of any of its uses; other origins as they are.
constexpr std::string_view linear_of_use(std::string_view origin) {
  return origin.substr(0, origin.find('@'));
}

}  // namespace octet
