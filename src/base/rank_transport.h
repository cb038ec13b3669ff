// Transport of data between the devices of ranks (parallel.transport).
#pragma once

#include <cstdint>

#include "base/named_enum.h"

namespace octet {

// Transport between ranks' devices. automatic: peer on one host whose devices all reach each
// other's memory, nccl else.
enum class RankTransport : uint8_t { automatic, peer, nccl };
constexpr auto value_names(RankTransport) {
  return name_list("auto", "peer", "nccl");
}

}  // namespace octet
