#include "cli/faults/fault_case.h"

#include <sys/stat.h>

#include <charconv>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "io/checkpoint_marker.h"

namespace octet::test {
namespace {

[[noreturn]] void wrong(const std::string& what) {
  throw std::runtime_error("tests/faults: " + what);
}

std::string from_hex(const std::string& text) {
  std::string digits, bytes;
  for (const char ch : text) {
    if (ch != ' ' && ch != '\n') digits += ch;
  }
  if (digits.size() % 2 != 0) wrong("expected pairs of hexadecimal digits, got " + text);
  for (size_t i = 0; i < digits.size(); i += 2) {
    unsigned value = 0;
    const char* end = digits.data() + i + 2;
    if (std::from_chars(end - 2, end, value, 16).ptr != end)
      wrong("no hexadecimal digits: " + text);
    bytes += static_cast<char>(value);
  }
  return bytes;
}

std::string little_endian(uint64_t value, int n_bytes) {
  std::string bytes;
  for (int i = 0; i < n_bytes; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

std::string repeated(const std::string& text, size_t n_bytes) {
  std::string bytes;
  while (bytes.size() < n_bytes) bytes += text;
  return bytes.substr(0, n_bytes);
}

std::string hex_of(const YAML::Node& node) {
  return node ? from_hex(node.as<std::string>()) : "";
}

FaultCase read_case(const std::string& topic, const YAML::Node& node) {
  static const std::set<std::string> kKeys = {"name", "files", "edits", "with",
                                              "run",  "exit",  "stderr"};
  for (const auto& entry : node) {
    if (!kKeys.contains(entry.first.as<std::string>())) wrong(topic + ": unknown key");
  }
  FaultCase fault;
  fault.topic = topic;
  fault.name = node["name"].as<std::string>();
  if (node["files"]) fault.files = node["files"];
  if (node["edits"]) fault.edits = node["edits"];
  fault.with_run = node["with"] && node["with"].as<std::string>() == "run";
  fault.command = node["run"].as<std::string>();
  fault.code = node["exit"].as<int>();
  const YAML::Node lines = node["stderr"];
  if (lines.IsScalar()) {
    fault.err = lines.as<std::string>() + "\n";
  } else {
    for (const YAML::Node& line : lines) fault.err += line.as<std::string>() + "\n";
  }
  return fault;
}

std::string made_bytes(const YAML::Node& recipe) {
  if (recipe.IsScalar()) return recipe.as<std::string>();
  if (recipe["hex"]) return hex_of(recipe["hex"]);
  if (recipe["repeat"]) {
    return repeated(recipe["repeat"].as<std::string>(), recipe["bytes"].as<size_t>());
  }
  if (const YAML::Node header = recipe["safetensors"]) {
    const std::string text = header.as<std::string>();
    return little_endian(text.size(), 8) + text + hex_of(recipe["data"]);
  }
  if (const YAML::Node header = recipe["npy"]) {
    const std::string text = header.as<std::string>();
    return "\x93NUMPY" + std::string("\1\0", 2) + little_endian(text.size(), 2) + text +
           hex_of(recipe["data"]);
  }
  wrong("expected text, hex, repeat, safetensors or npy");
}

}  // namespace

void make_file(const ScratchFolder& folder, const std::string& name, const YAML::Node& recipe) {
  const bool is_special =
      recipe.IsMap() && (recipe["fifo"] || recipe["link"] || recipe["folder"] || recipe["sparse"]);
  const std::string path = folder.put(name, is_special ? "" : made_bytes(recipe));
  if (!is_special) return;
  if (recipe["sparse"]) return std::filesystem::resize_file(path, recipe["sparse"].as<uintmax_t>());
  std::filesystem::remove(path);
  if (recipe["fifo"] && ::mkfifo(path.c_str(), 0600) != 0) wrong("cannot make a FIFO");
  if (recipe["folder"]) std::filesystem::create_directory(path);
  if (recipe["link"]) std::filesystem::create_symlink(recipe["link"].as<std::string>(), path);
}

bool fits(std::string_view text, std::string_view expected) {
  constexpr std::string_view kAny = "{any}";
  const size_t any = expected.find(kAny);
  if (any == expected.npos) return text == expected;
  if (text.substr(0, any) != expected.substr(0, any)) return false;
  expected.remove_prefix(any + kAny.size());
  for (size_t end = any; end <= text.size(); ++end) {
    if (fits(text.substr(end), expected)) return true;
    if (end < text.size() && text[end] == '\n') return false;
  }
  return false;
}

void apply_edit(const ScratchFolder& folder, const YAML::Node& edit) {
  if (const YAML::Node files = edit["make"]) {
    for (const auto& file : files) make_file(folder, file.first.as<std::string>(), file.second);
    return;
  }
  if (edit["remove"]) {
    std::filesystem::remove_all(folder / edit["remove"].as<std::string>());
    return;
  }
  const std::string name = edit["file"].as<std::string>();
  std::string bytes = posix_files().read_text(folder / name);
  if (const YAML::Node pair = edit["replace"]) {
    const std::string from = pair[0].as<std::string>();
    const size_t at = bytes.find(from);
    if (at == std::string::npos) wrong(name + " does not hold " + from);
    bytes.replace(at, from.size(), pair[1].as<std::string>());
  } else if (edit["at"]) {
    const std::string patch = hex_of(edit["hex"]);
    bytes.replace(edit["at"].as<size_t>(), patch.size(), patch);
  } else if (edit["keep"]) {
    bytes.resize(edit["keep"].as<size_t>());
  } else {
    bytes += hex_of(edit["append"]);
  }
  folder.put(name, bytes);
  if (!edit["mark"]) return;
  // The marker follows the change, so that what lies behind it is met.
  const std::string marker_name = join_path(parent_path(name), "COMPLETE");
  posix_files().remove(folder / name);
  Marker marker = parse_marker(posix_files().read_text(folder / marker_name), marker_name);
  marker[file_name(name)] = write_marked(posix_files(), folder / name,
                                         [&](FileWriter& out) { out.write(as_bytes(bytes)); });
  folder.put(marker_name, marker_to_json(marker));
}

std::vector<FaultCase> load_faults(const std::string& folder) {
  std::vector<FaultCase> faults;
  std::set<std::string> names;
  for (const DirectoryEntry& entry : posix_files().list(folder)) {
    if (!entry.name.ends_with(".yaml")) continue;
    const std::string topic = entry.name.substr(0, entry.name.size() - 5);
    for (const YAML::Node& node : YAML::LoadFile(join_path(folder, entry.name))) {
      faults.push_back(read_case(topic, node));
      if (!names.insert(topic + "/" + faults.back().name).second) {
        wrong(topic + "/" + faults.back().name + " comes twice");
      }
    }
  }
  return faults;
}

}  // namespace octet::test
