// Owners of the states of a KV cache (StateUse::kv_cache), "LAYER.WHAT.BATCHxROWS". Caches of
// several sizes live in one program, so that the sizes are part of the name.
//   k, v    keys and values that each call appends, a row for each of the text's positions
//   ck, cv  those of a source, which `encode` writes (compile/functions.h)
//   sd, sx  what a recurrence leaves of all tokens before: the state of the gated delta rule, and
//           the last inputs of the convolution before it. ROWS is the size of the cache beside
//           them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace octet {

inline std::string cache_owner(int layer, std::string_view what, int64_t batch, int64_t rows) {
  return fmt::format("{}.{}.{}x{}", layer, what, batch, rows);
}

// True if the cache is of the keys or values of a source.
inline bool is_source_cache(std::string_view owner) {
  return owner.find(".ck.") != std::string_view::npos ||
         owner.find(".cv.") != std::string_view::npos;
}

// True if the cache is a recurrence's, which has no rows of positions.
inline bool is_recurrent_cache(std::string_view owner) {
  return owner.find(".sd.") != std::string_view::npos ||
         owner.find(".sx.") != std::string_view::npos;
}

}  // namespace octet
