#include "data/line_pairs.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"
#include "data/text_files.h"

namespace octet {

std::vector<TextRecord> read_line_pairs(const Files& files, const std::vector<std::string>& sources,
                                        const std::vector<std::string>& targets) {
  if (sources.size() != targets.size()) {
    throw Error(ErrorCode::bad_data,
                "[data] expected a file of targets for each of {} files of sources, got {}",
                sources.size(), targets.size());
  }
  std::vector<TextRecord> records;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::vector<std::string> source = read_text_lines(files, sources[i]),
                                   target = read_text_lines(files, targets[i]);
    if (source.size() != target.size()) {
      throw Error(ErrorCode::bad_data, "[data] {}: expected as many lines as the {} of {}, got {}",
                  targets[i], source.size(), sources[i], target.size());
    }
    for (size_t line = 0; line < source.size(); ++line) {
      records.push_back({.first = source[line],
                         .second = target[line],
                         .place = fmt::format("{}:{}", sources[i], line + 1)});
    }
  }
  return records;
}

}  // namespace octet
