// Base64 with padding (RFC 4648, section 4).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace octet {

std::string encode_base64(std::span<const std::byte> bytes);
// Nothing for what is no base64, and for no letter at all.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace octet
