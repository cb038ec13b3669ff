// ToolBench's answers: a tree of thoughts, actions and their inputs, searched depth first. Source:
// the data that ToolBench publishes (Qin et al. 2023).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/error.h"
#include "data/chat_records.h"

namespace octet {
namespace {

constexpr int kGaveAnswer = 3;  // observation_code of a Finish that gives an answer

struct Walk {
  std::vector<const OrderedJson*> path = {};  // from the root to where the walk is
  std::vector<int64_t> turns = {};            // which child of each
};

struct Search {
  std::string answer;  // preferred
  Walk walk = {}, found = {};
  bool is_preferred = false;
  int64_t n_nodes = 0;
};

std::string text_of(const OrderedJson& node, const char* key) {
  const auto it = node.find(key);
  if (it == node.end() || it->is_null()) return "";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

bool finishes(const Walk& walk) {
  const OrderedJson& node = *walk.path.back();
  if (walk.path.size() < 2 || text_of(node, "node_type") != "Action Input") return false;
  const auto code = node.find("observation_code");
  const bool is_answer = code != node.end() && code->is_number_integer() && *code == kGaveAnswer;
  return is_answer && text_of(*walk.path[walk.path.size() - 2], "description") == "Finish";
}

// The nesting is bounded by what JSON may nest.
void search(const OrderedJson& node, Search& state) {
  if (!node.is_object()) bad_record("a node that is no object");
  state.walk.path.push_back(&node);
  ++state.n_nodes;
  if (finishes(state.walk) && !state.is_preferred) {
    const bool is_preferred = text_of(node, "description") == state.answer;
    if (is_preferred || state.found.path.empty()) state.found = state.walk;
    state.is_preferred = is_preferred;
  }
  const auto children = node.find("children");
  if (children != node.end() && children->is_array()) {
    for (size_t i = 0; i < children->size(); ++i) {
      state.walk.turns.push_back(static_cast<int64_t>(i));
      search((*children)[i], state);
      state.walk.turns.pop_back();
    }
  }
  state.walk.path.pop_back();
}

// The system's text: what the search told the model first, or the functions in our words.
std::string system_text(const OrderedJson& generation) {
  const auto chains = generation.find("train_messages");
  if (chains != generation.end() && chains->is_array() && !chains->empty()) {
    const OrderedJson& chain = chains->front();
    if (chain.is_array() && !chain.empty() && chain.front().is_object() &&
        text_of(chain.front(), "role") == "system") {
      return text_of(chain.front(), "content");
    }
  }
  const auto functions = generation.find("function");
  return "Answer with calls of these functions, and end with a call of Finish: " +
         (functions == generation.end() ? "[]" : functions->dump());
}

// A message of the assistant for each call, and one of the tool for what it returned.
int64_t add_calls(const std::vector<const OrderedJson*>& path, OrderedJson& messages) {
  int64_t n_calls = 0;
  std::string said, name;
  for (const OrderedJson* node : path) {
    const std::string kind = text_of(*node, "node_type"), what = text_of(*node, "description");
    const bool is_root = node == path.front();
    if (is_root) continue;
    if (kind == "Action") name = what;
    said += fmt::format("{}{}: {}", said.empty() ? "" : "\n", kind, what);
    if (kind != "Action Input") continue;
    messages.push_back({{"role", "assistant"}, {"content", said}});
    said.clear();
    ++n_calls;
    if (node == path.back()) continue;
    messages.push_back(
        {{"role", "tool"}, {"name", name}, {"content", text_of(*node, "observation")}});
  }
  return n_calls;
}

}  // namespace

ChatRecord read_answer_tree(const OrderedJson& json) {
  const OrderedJson& generation = json["answer_generation"];
  const OrderedJson& outer = json["tree"];
  if (!generation.is_object() || !outer.is_object() || !outer.contains("tree")) {
    bad_record("an answer tree without a root");
  }
  Search state{.answer = text_of(generation, "final_answer")};
  search(outer["tree"], state);
  if (state.found.path.empty()) bad_record("an answer tree that ends without an answer");
  ChatRecord record{.format = "answer tree"};
  OrderedJson& messages = record.context["messages"];
  messages = {{{"role", "system"}, {"content", system_text(generation)}},
              {{"role", "user"}, {"content", text_of(generation, "query")}}};
  const int64_t n_calls = add_calls(state.found.path, messages);
  record.note = fmt::format("path {}: {} calls, {} of {} nodes", fmt::join(state.found.turns, "."),
                            n_calls, state.found.path.size(), state.n_nodes);
  return record;
}

}  // namespace octet
