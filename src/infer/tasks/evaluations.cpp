#include "infer/tasks/evaluations.h"

#include "base/error.h"
#include "base/parse_text.h"

namespace octet {
namespace {

std::string path_of(const std::string& run) {
  return join_path(run, "evaluations.jsonl");
}

bool are_same(const OrderedJson& a, const OrderedJson& b) {
  for (const char* key : {"step", "task", "convention", "shots", "recipe", "n"}) {
    if (a.value(key, OrderedJson()) != b.value(key, OrderedJson())) return false;
  }
  return true;
}

}  // namespace

std::optional<int64_t> checkpoint_step(const ModelSource& source) {
  if (!source.run) return std::nullopt;
  const std::string name = file_name(parent_path(source.weights.path));  // step-000100
  const size_t dash = name.rfind('-');
  if (dash == std::string::npos) return std::nullopt;
  return parse_number<int64_t>(std::string_view(name).substr(dash + 1));
}

void add_evaluations(Files& files, const std::string& run, const std::vector<OrderedJson>& rows) {
  std::vector<OrderedJson> all = read_evaluations(files, run);
  for (const OrderedJson& row : rows) {
    std::erase_if(all, [&](const OrderedJson& old) { return are_same(old, row); });
    all.push_back(row);
  }
  std::string text;
  for (const OrderedJson& row : all) {
    text += json_line(row) + "\n";
  }
  write_atomically(files, path_of(run), text);
}

std::vector<OrderedJson> read_evaluations(const Files& files, const std::string& run) {
  std::vector<OrderedJson> rows;
  const std::string path = path_of(run);
  if (!files.exists(path)) return rows;
  const std::string text = files.read_text(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    OrderedJson row = OrderedJson::parse(text.substr(at, end - at), nullptr, false);
    if (row.is_object()) rows.push_back(std::move(row));
    at = end + 1;
  }
  return rows;
}

}  // namespace octet
