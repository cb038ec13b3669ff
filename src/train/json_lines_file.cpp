#include "train/json_lines_file.h"

#include <sstream>

#include "base/json.h"
#include "base/temporary_file.h"

namespace octet {
namespace {

constexpr uint64_t kMostBytes = uint64_t{16} << 30;

// A line that a kill cut short does not parse, and is dropped.
bool is_kept(const std::string& line, int64_t last_step) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
    return false;
  return json["step"].get<int64_t>() <= last_step;
}

std::string kept_lines(const Files& files, const std::string& path, int64_t last_step) {
  if (last_step <= 0 || !files.exists(path)) return "";
  std::istringstream text(files.read_text(path, kMostBytes));
  std::string kept;
  for (std::string line; std::getline(text, line);) {
    if (is_kept(line, last_step)) kept += line + "\n";
  }
  return kept;
}

}  // namespace

JsonLinesFile::JsonLinesFile(Files& files, const std::string& path, int64_t last_step)
    : kept_(kept_lines(files, path, last_step)) {
  TemporaryFile file(files, path);
  file.writer().write(as_bytes(kept_));
  file.writer().sync();
  file.put_in_place();  // the open file goes with its name
  file_ = file.take_writer();
}

void JsonLinesFile::append(std::string_view json) {
  file_->write(as_bytes(std::string(json) + "\n"));
}

}  // namespace octet
