// The message of the Error that fn throws, with the scratch folder's path replaced by "DIR"; "no
// error" without one.
#pragma once

#include <string>

#include "base/error.h"

namespace octet::test {

template <typename Fn>
std::string error_of(Fn fn, const std::string& folder = {}) {
  try {
    fn();
  } catch (const Error& error) {
    std::string text = error.what();
    for (size_t at; !folder.empty() && (at = text.find(folder)) != text.npos;) {
      text.replace(at, folder.size(), "DIR");
    }
    return text;
  }
  return "no error";
}

}  // namespace octet::test
