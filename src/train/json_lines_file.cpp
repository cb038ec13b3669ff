#include "train/json_lines_file.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/temporary_file.h"

namespace octet {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20;

// A line that a kill cut short does not parse, and is dropped.
bool is_kept(std::string_view line, int64_t last_step) {
  if (const auto step = quick_step(line)) return *step <= last_step;
  const Json json = parse_own_json(line);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
    return false;
  return json["step"].get<int64_t>() <= last_step;
}

// Every line; none longer than a piece, which no line of ours is.
void for_each_line(const FileReader& file, const JsonLinesFile::Visit& visit) {
  std::vector<char> bytes(std::min(kPieceBytes, file.size() + 1));
  size_t n_kept = 0;  // of a line whose end has not come yet
  bool is_too_long = false;
  for (uint64_t at = 0; at < file.size();) {
    const size_t n = std::min<uint64_t>(bytes.size() - n_kept, file.size() - at);
    file.read_at(at, std::as_writable_bytes(std::span(bytes).subspan(n_kept, n)));
    at += n;
    std::string_view text(bytes.data(), n_kept + n);
    for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
      if (!std::exchange(is_too_long, false)) visit(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    is_too_long = is_too_long || text.size() == bytes.size();
    n_kept = is_too_long ? 0 : text.size();
    std::copy_n(text.data(), n_kept, bytes.data());
  }
  if (n_kept > 0 && !is_too_long) visit({bytes.data(), n_kept});
}

// The file's own messages tell the name that it was made under, and that is gone.
[[noreturn]] void fail(std::string_view operation, const std::string& path, const Error& error) {
  const std::string_view what = error.what();
  const size_t end = what.rfind("': ");
  const std::string_view reason = end == what.npos ? what : what.substr(end + 3);
  throw Error(error.code(), "[files] cannot {} '{}': {}", operation, path, reason);
}

}  // namespace

std::optional<int64_t> quick_step(std::string_view line) {
  constexpr std::string_view kStart = "{\"step\":";
  if (!line.starts_with(kStart) || !line.ends_with('}')) return std::nullopt;
  const char* digits = line.data() + kStart.size();
  int64_t step = 0;
  const auto read = std::from_chars(digits, line.data() + line.size(), step);
  if (read.ec != std::errc() || *read.ptr != ',') return std::nullopt;
  return step;
}

JsonLinesFile::JsonLinesFile(Files& files, const std::string& path, int64_t last_step,
                             const Visit& visit)
    : path_(path) {
  TemporaryFile file(files, path);
  if (last_step > 0 && files.exists(path)) {
    std::string kept;
    for_each_line(*files.open(path), [&](std::string_view line) {
      if (!is_kept(line, last_step)) return;
      if (visit) visit(line);
      kept.append(line).push_back('\n');
      if (kept.size() < kPieceBytes) return;
      file.writer().write(as_bytes(kept));
      kept.clear();
    });
    file.writer().write(as_bytes(kept));
  }
  file.writer().sync();
  file.put_in_place();  // the open file goes with its name
  file_ = file.take_writer();
}

void JsonLinesFile::append(std::string_view json) {
  try {
    file_->write(as_bytes(std::string(json) + "\n"));
  } catch (const Error& error) {
    fail("write to", path_, error);
  }
}

void JsonLinesFile::sync() {
  try {
    file_->sync();
  } catch (const Error& error) {
    fail("sync", path_, error);
  }
}

}  // namespace octet
