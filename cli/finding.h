// What `octet doctor` looked at, one line of its table.
#pragma once

#include <string>

namespace octet {

struct Finding {
  std::string what;
  bool is_there = false;
  std::string detail;
  std::string remedy;  // what to do when it is missing; empty: nothing can or need be done
};

}  // namespace octet
