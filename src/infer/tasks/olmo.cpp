// OLMo's evaluation files: config.json, and a request a line in requests.jsonl.gz. Each request
// stands there twice: with doc_id from 1,000,000 on behind "Answer:" alone, which is left out.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "data/json_values.h"
#include "infer/tasks/task.h"

namespace octet {
namespace {

constexpr int64_t kUnconditional = 1'000'000;

std::string variant_of(const TaskQuery& query) {
  if (query.name.starts_with("copycolors")) return "10way";
  if (query.name == "gsm8k") return "gold_bpb_5shot";
  const bool by_letter = query.name.ends_with(":mc");
  return fmt::format("{}_{}shot", by_letter ? "mc" : "rc", query.shots.value_or(by_letter ? 5 : 0));
}

std::string file_of(const TaskQuery& query, std::string_view file) {
  const std::string task = query.name.substr(0, query.name.find(':'));
  const std::string path = fmt::format("{}/{}/{}", task, variant_of(query), file);
  std::vector<std::string> paths = {"olmo_oe_eval/" + path, path};
  if (file.ends_with(".gz")) {
    const std::string plain = path.substr(0, path.size() - 3);
    paths.insert(paths.end(), {"olmo_oe_eval/" + plain, plain});
  }
  return find_task_file(query, paths);
}

const OrderedJson& object_in(const OrderedJson& json, const char* key, const std::string& where) {
  const auto it = json.find(key);
  if (it != json.end() && it->is_object()) return *it;
  throw Error(ErrorCode::bad_data, "[tasks] {}: expected an object '{}', got {}", where, key,
              it == json.end() ? "none" : it->type_name());
}

OrderedJson object_of(std::string_view text, const std::string& where) {
  OrderedJson json = parse_ordered_json(text, where);
  if (json.is_object()) return json;
  throw Error(ErrorCode::bad_data, "[tasks] {}: expected an object, got {}", where,
              json.type_name());
}

// The requests of a file, put together to documents in the order of their numbers.
class OlmoFile {
 public:
  OlmoFile(const TaskDef& def, Convention convention) : def_(def), convention_(convention) {}

  void add(const OrderedJson& json, const std::string& where) {
    const int64_t id = index_of(json, "doc_id");
    if (id >= kUnconditional) return;
    TaskDocument& document = documents_[id];
    const OrderedJson& doc = object_in(json, "doc", where);
    if (convention_ == Convention::lm_eval) {
      if (document.choices.empty()) document = def_.from_olmo(doc);
      return;
    }
    const OrderedJson& request = object_in(json, "request", where);
    const auto choice = static_cast<size_t>(index_of(json, "idx"));
    constexpr size_t kMaxChoices = 1000;
    if (choice >= kMaxChoices) {
      throw Error(ErrorCode::bad_data, "[tasks] {}: expected idx below {}, got {}", where,
                  kMaxChoices, choice);
    }
    if (document.choices.size() <= choice) document.choices.resize(choice + 1);
    const std::string text = text_of(request, "continuation");
    document.choices[choice] = {{text_of(request, "context"), text},
                                n_characters(text) - (text.starts_with(' ') ? 1 : 0)};
    const auto label = json.find("label");
    document.gold = label != json.end() && label->is_number_integer() ? index_of(json, "label") : 0;
  }

  std::vector<TaskDocument> take(const std::string& path) {
    std::vector<TaskDocument> result;
    for (auto& [id, document] : documents_) {
      document.id = fmt::to_string(id);
      const bool is_whole = !document.choices.empty() &&
                            document.gold < std::ssize(document.choices) &&
                            std::ranges::all_of(document.choices, [](const TaskChoice& c) {
                              return !c.request.continuation.empty() && c.n_characters > 0;
                            });
      if (!is_whole) {
        throw Error(ErrorCode::bad_data,
                    "[tasks] {}: expected all choices of document {} and the right one's number, "
                    "got {} choices and {}",
                    path, id, document.choices.size(), document.gold);
      }
      result.push_back(std::move(document));
    }
    return result;
  }

 private:
  const TaskDef& def_;
  Convention convention_;
  std::map<int64_t, TaskDocument> documents_;
};

}  // namespace

TaskData read_olmo(const TaskQuery& query, const TaskDef& def) {
  const std::string config_path = file_of(query, "config.json");
  const std::string path = file_of(query, "requests.jsonl.gz");
  const OrderedJson config = object_of(query.files.read_text(config_path), config_path);
  const OrderedJson& task = object_in(config, "task_config", config_path);
  TaskData data;
  data.split = text_of(task, "split");
  data.shots = index_of(task, "num_shots");
  data.has_norm = def.has_norm && !query.name.ends_with(":mc");
  if (text_of(task, "primary_metric") == "logits_per_byte") data.score = TaskScore::bits_per_byte;
  OlmoFile file(def, query.convention);
  JsonValues values(query.files, path);
  while (const auto value = values.next()) {
    const std::string where = fmt::format("{}:{}", path, value->line);
    file.add(object_of(value->text, where), where);
  }
  data.documents = file.take(path);
  return data;
}

}  // namespace octet
