// What crosses the module's C interfaces: exceptions become a code and a text of the thread.
#pragma once

#include <exception>
#include <string>

namespace octet::cuda {

// Of the last call of this thread that failed.
inline std::string& error_text() {
  static thread_local std::string text;
  return text;
}

// 0, or 1 where f threw.
template <typename F>
int guarded(F&& f) {
  try {
    f();
    return 0;
  } catch (const std::exception& error) {
    error_text() = error.what();
    return 1;
  }
}

}  // namespace octet::cuda
