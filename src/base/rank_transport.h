// What moves data between the devices of ranks (parallel.transport).
#pragma once

#include <cstdint>
#include <string_view>

namespace octet {

// What moves data between ranks' devices. automatic: peer on one host whose devices all reach each
// other's memory, nccl else.
enum class RankTransport : uint8_t { automatic, peer, nccl };
constexpr std::string_view enum_name(RankTransport transport) {
  constexpr std::string_view names[] = {"auto", "peer", "nccl"};
  return names[static_cast<int>(transport)];
}
constexpr int enum_count(RankTransport) {
  return 3;
}

}  // namespace octet
