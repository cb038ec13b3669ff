#include "data/line_pairs.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"
#include "base/input_limits.h"
#include "base/parse_text.h"
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
    const auto lines = [&](const std::string& path) {
      const std::string text = read_text_file(files, path, input_limits().max_unpacked_bytes);
      if (!is_readable_text(text))
        throw Error(ErrorCode::bad_data, "[data] {}: expected UTF-8 text", path);
      std::vector<std::string> all;
      for (std::string_view rest = text; !rest.empty();) all.emplace_back(take_line(rest));
      return all;
    };
    const std::vector<std::string> source = lines(sources[i]), target = lines(targets[i]);
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
