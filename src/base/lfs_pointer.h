// The pointer that git leaves in a file's place where git-lfs has not fetched it.
#pragma once

#include <string_view>

namespace octet {

inline constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";
inline constexpr std::string_view kLfsAdvice =
    "a git-lfs pointer (`git lfs pull` fetches the file)";

}  // namespace octet
