// Amounts as people read them.
#pragma once

#include <string>

namespace octet {

// "512 bytes", "1.5 GiB"
std::string bytes_text(double n_bytes);

}  // namespace octet
