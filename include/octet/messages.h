// Messages of Octet beside its results: warnings, and how a run gets on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace octet {

enum class MessageLevel : uint8_t { info, warning };

// Gets one line without its end. Called on the caller's thread, within its call. Without one,
// messages are dropped.
using MessageSink = std::function<void(MessageLevel level, const std::string& line)>;

}  // namespace octet
