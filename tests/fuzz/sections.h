// Inputs that stand for several files.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <string_view>

namespace octet::fuzz {

// The bytes in sections, each behind a line "@NAME".
inline std::map<std::string, std::string> sections_of(std::string_view bytes) {
  std::map<std::string, std::string> sections;
  std::string* section = nullptr;
  std::istringstream text{std::string(bytes)};
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with('@')) {
      section = &sections[line.substr(1)];
    } else if (section != nullptr) {
      *section += line + "\n";
    }
  }
  return sections;
}

}  // namespace octet::fuzz
