// The logger: the only way that src writes to a terminal. Progress and results go through a sink
// that the command line installs; without one, messages are dropped.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>

namespace octet {

enum class LogLevel { debug, info, warning };

class Log {
 public:
  using Sink = std::function<void(LogLevel, const std::string&)>;
  Log() = default;
  explicit Log(Sink sink) : sink_(std::move(sink)) {}

  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
  }
  void write(LogLevel level, const std::string& message) const {
    if (sink_) sink_(level, message);
  }

 private:
  Sink sink_;
};

}  // namespace octet
