// Evaluation tasks: what each asks of a model, from files on this machine. A task is a row of
// all_tasks() and a function that reads its documents; docs/evaluation.md lists both conventions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/named_enum.h"
#include "base/ordered_json.h"
#include "infer/score.h"

namespace octet {

// Prompts and scores as EleutherAI's lm-evaluation-harness has them, or requests as OLMo's
// evaluation files hold them.
enum class Convention : uint8_t { lm_eval, olmo };
constexpr auto value_names(Convention) {
  return name_list("lm-eval", "olmo");
}

enum class TaskScore : uint8_t {
  choice,         // the choice with the largest log-likelihood, whole or by character
  last_word,      // whether the continuation is what the model would say; its perplexity
  gsm8k_number,   // the number behind "####", or the last one
  last_number,    // the last number, by value
  bits_per_byte,  // of one continuation
};

struct TaskChoice {
  ScoreRequest request;
  int64_t n_characters = 0;  // of the choice, without the space before it
};

struct TaskDocument {
  std::string id;
  std::vector<TaskChoice> choices = {};  // none where an answer is generated
  int64_t gold = 0;                      // the right one
  std::string prompt = {}, answer = {};  // where an answer is generated
};

struct TaskData {
  std::string split;  // as the files name it
  int64_t shots = 0;
  TaskScore score = TaskScore::choice;
  bool has_norm = true;  // whether scores by character are published too
  std::vector<TaskDocument> documents = {};
  std::vector<std::string> stop = {};  // texts that end an answer
};

struct TaskQuery {
  const Files& files;
  std::string name;    // of the task
  std::string folder;  // --task-data
  Convention convention = Convention::lm_eval;
  std::optional<int64_t> shots = {};  // the task's own where absent
  int64_t limit = 0;                  // documents; 0: all
};

struct TaskDef {
  std::string_view name;
  std::string_view help;
  // In lm-eval's convention; nullptr where there is no such thing.
  TaskData (*read)(const TaskQuery& query) = nullptr;
  // The same of one document of OLMo's files, where `read` is absent.
  TaskDocument (*from_olmo)(const OrderedJson& document) = nullptr;
  bool has_norm = true;
};

std::span<const TaskDef> all_tasks();
// The documents of a task. "NAME:mc" are OLMo's multiple choices by letter. Throws
// Error{invalid_argument} for a name that is none, naming the nearest, for shots or a convention
// that the task does not have; Error{bad_data} where no file is there, naming all that were looked
// for, and where a file is damaged.
TaskData read_task(const TaskQuery& query);

// The first of these paths below the folder that is there.
std::string find_task_file(const TaskQuery& query, const std::vector<std::string>& paths);
// Typed access to a document; Error{bad_data} naming the key.
std::string text_of(const OrderedJson& document, const char* key);
int64_t index_of(const OrderedJson& document, const char* key);
// " " + choice behind the context.
TaskChoice spaced_choice(const std::string& context, const std::string& choice);
int64_t n_characters(std::string_view text);
// Throws Error{invalid_argument} unless the query asks for no shots: no examples are there.
void expect_no_shots(const TaskQuery& query);

TaskData read_olmo(const TaskQuery& query, const TaskDef& def);
TaskData read_hellaswag(const TaskQuery& query);
TaskData read_lambada(const TaskQuery& query);
TaskData read_gsm8k(const TaskQuery& query);
TaskData read_svamp(const TaskQuery& query);
TaskData read_numglue(const TaskQuery& query);
TaskData read_mathematica(const TaskQuery& query);
TaskData read_mmlu(const TaskQuery& query);

}  // namespace octet
