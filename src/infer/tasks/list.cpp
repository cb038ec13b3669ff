#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/nearest.h"
#include "data/text_files.h"
#include "infer/tasks/task.h"

namespace octet {
namespace {

// The part between two texts.
std::string between(const std::string& text, std::string_view before, std::string_view behind) {
  if (!text.starts_with(before) || !text.ends_with(behind) ||
      text.size() < before.size() + behind.size()) {
    throw Error(ErrorCode::bad_data, "[tasks] expected '{}' ... '{}' around a question, got '{}'",
                before, behind, text.substr(0, 80));
  }
  return text.substr(before.size(), text.size() - before.size() - behind.size());
}

std::vector<std::string> choices_of(const OrderedJson& document) {
  const auto it = document.find("choices");
  if (it == document.end() || !it->is_array()) {
    throw Error(ErrorCode::bad_data, "[tasks] expected choices in a document, got {}",
                it == document.end() ? "none" : it->type_name());
  }
  std::vector<std::string> choices;
  for (const OrderedJson& choice : *it) {
    if (!choice.is_string()) {
      throw Error(ErrorCode::bad_data, "[tasks] expected choices of text, got {}",
                  choice.type_name());
    }
    choices.push_back(choice.get<std::string>());
  }
  return choices;
}

TaskDocument with_choices(const std::string& context, const std::vector<std::string>& choices,
                          int64_t gold) {
  TaskDocument result;
  for (const std::string& choice : choices) {
    result.choices.push_back(spaced_choice(context, choice));
  }
  result.gold = gold;
  return result;
}

TaskDocument arc(const OrderedJson& d) {
  return with_choices(text_of(d, "query"), choices_of(d), index_of(d, "gold"));
}

TaskDocument openbookqa(const OrderedJson& d) {
  return with_choices(between(text_of(d, "query"), "Question: ", "\nAnswer:"), choices_of(d),
                      index_of(d, "gold"));
}

TaskDocument piqa(const OrderedJson& d) {
  return with_choices("Question: " + text_of(d, "goal") + "\nAnswer:",
                      {text_of(d, "sol1"), text_of(d, "sol2")}, index_of(d, "label"));
}

TaskDocument sciq(const OrderedJson& d) {
  std::string support = text_of(d, "support");
  support.erase(0, std::min(support.size(), support.find_first_not_of(" \t\r\n\v\f")));
  return with_choices(support + "\nQuestion: " + text_of(d, "question") + "\nAnswer:",
                      {text_of(d, "distractor1"), text_of(d, "distractor2"),
                       text_of(d, "distractor3"), text_of(d, "correct_answer")},
                      3);
}

// "no" is the first choice.
TaskDocument boolq(const OrderedJson& d) {
  const std::vector<std::string> stored = choices_of(d);
  const auto gold = static_cast<size_t>(index_of(d, "gold"));
  if (gold >= stored.size()) {
    throw Error(ErrorCode::bad_data, "[tasks] expected gold below {}, got {}", stored.size(), gold);
  }
  return with_choices(text_of(d, "query"), {"no", "yes"}, stored[gold] == "yes" ? 1 : 0);
}

std::string lowered(std::string text) {
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] + 32);
  return text;
}

TaskDocument copa(const OrderedJson& d) {
  std::string premise(stripped(text_of(d, "premise"), " \t\r\n"));
  if (!premise.empty()) premise.pop_back();  // its period
  const bool is_cause = text_of(d, "question") == "cause";
  return with_choices(premise + (is_cause ? " because" : " therefore"),
                      {lowered(text_of(d, "choice1")), lowered(text_of(d, "choice2"))},
                      index_of(d, "label"));
}

// The choice stands in the context.
TaskDocument winogrande(const OrderedJson& d) {
  const std::string sentence = text_of(d, "sentence"), answer = text_of(d, "answer");
  const size_t blank = sentence.find('_');
  if (blank == std::string::npos || (answer != "1" && answer != "2")) {
    throw Error(ErrorCode::bad_data,
                "[tasks] expected a sentence with _ and answer 1 or 2, got '{}'",
                sentence.substr(0, 80));
  }
  const std::string rest(stripped(sentence.substr(blank + 1), " \t\r\n"));
  TaskDocument result;
  for (const char* key : {"option1", "option2"}) {
    result.choices.push_back(spaced_choice(sentence.substr(0, blank) + text_of(d, key), rest));
  }
  result.gold = answer == "1" ? 0 : 1;
  return result;
}

constexpr TaskDef kTasks[] = {
    {"hellaswag", "the right ending of a story", read_hellaswag},
    {"arc_easy", "questions of science, grade 3 to 9", nullptr, arc},
    {"arc_challenge", "those that are not found by looking up", nullptr, arc},
    {"sciq", "questions of science with a support text", nullptr, sciq},
    {"piqa", "how to do everyday things", nullptr, piqa},
    {"openbookqa", "questions of elementary science", nullptr, openbookqa},
    {"boolq", "yes or no, by a passage", nullptr, boolq, false},
    {"copa", "cause or effect", nullptr, copa, false},
    {"winogrande", "which of two is meant", nullptr, winogrande, false},
    {"csqa", "common sense; OLMo's convention alone", nullptr, nullptr},
    {"socialiqa", "social situations; OLMo's convention alone", nullptr, nullptr},
    {"copycolors", "ten colours by letter; OLMo's convention alone", nullptr, nullptr, false},
    {"lambada", "the last word of a passage", read_lambada},
    {"gsm8k", "word problems, generated answers", read_gsm8k},
    {"svamp", "short word problems, generated answers", read_svamp},
    {"numglue", "problems with numbers as answers, five of its eight kinds, generated",
     read_numglue},
    {"mathematica", "problems of algebra and numbers, generated answers", read_mathematica},
    {"mmlu", "questions of 57 subjects by letter, behind five examples", read_mmlu, nullptr, false},
};

}  // namespace

std::span<const TaskDef> all_tasks() {
  return kTasks;
}

TaskData read_task(const TaskQuery& query) {
  const std::string name = query.name.substr(0, query.name.find(':'));
  const auto def = std::find_if(std::begin(kTasks), std::end(kTasks),
                                [&](const TaskDef& task) { return task.name == name; });
  if (def == std::end(kTasks) || (name != query.name && query.name != name + ":mc")) {
    std::vector<std::string> names;
    for (const TaskDef& task : kTasks) names.emplace_back(task.name);
    throw Error(ErrorCode::invalid_argument, "--tasks: expected a task, got '{}'{}", query.name,
                nearest_hint("; the nearest is ", name, names));
  }
  TaskData data;
  if (query.convention == Convention::olmo) {
    data = read_olmo(query, *def);
  } else if (name == query.name && def->read != nullptr) {
    data = def->read(query);
  } else if (name == query.name && def->from_olmo != nullptr) {
    expect_no_shots(query);
    data = read_olmo(query, *def);
  } else {
    throw Error(ErrorCode::invalid_argument,
                "--tasks: {} expected --convention olmo, got lm-eval, which has no such task here",
                query.name);
  }
  const auto limit = static_cast<size_t>(query.limit);
  if (query.limit > 0 && data.documents.size() > limit) data.documents.resize(limit);
  return data;
}

}  // namespace octet
