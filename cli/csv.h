// Rows of CSV files (RFC 4180, with line feeds).
#pragma once

#include <string>
#include <vector>

namespace octet {

// One line with its end, of at least one cell; a NaN has no sign.
inline std::string csv_row(const std::vector<std::string>& cells) {
  std::string out;
  for (std::string cell : cells) {
    if (cell == "-nan") cell = "nan";
    if (cell.find_first_of(",\"\n\r") != std::string::npos) {
      for (size_t at = 0; (at = cell.find('"', at)) != std::string::npos; at += 2)
        cell.insert(at, "\"");
      cell.insert(0, "\"").append("\"");
    }
    out += cell + ',';
  }
  out.back() = '\n';
  return out;
}

}  // namespace octet
