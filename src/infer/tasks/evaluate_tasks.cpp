#include "infer/tasks/evaluate_tasks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "infer/generate.h"

namespace octet {
namespace {

constexpr size_t kShortestShared = 16;  // tokens that are worth to be computed once

bool is_generated(const PreparedTask& task) {
  return task.data.score == TaskScore::gsm8k_number || task.data.score == TaskScore::last_number;
}

OrderedJson request_json(const PreparedTask& task, const TaskRun& run,
                         const std::string& document) {
  return {{"task", task.name},        {"convention", enum_name(task.convention)},
          {"shots", task.data.shots}, {"recipe", run.recipe},
          {"settings", run.settings}, {"document", document}};
}

[[noreturn]] void fail_document(const std::string& task, const std::string& document,
                                const Error& error) {
  throw Error(error.code(), "[tasks] {}, document {}: {}", task, document, error.what());
}

// Each request of the task, in the order of PreparedTask::scored.
std::vector<OrderedJson> scored_requests(const PreparedTask& task, const TaskRun& run) {
  std::vector<OrderedJson> requests;
  for (const TaskDocument& document : task.data.documents) {
    for (size_t i = 0; i < document.choices.size(); ++i) {
      OrderedJson json = request_json(task, run, document.id);
      json["choice"] = i;
      json["context"] = document.choices[i].request.context;
      json["continuation"] = document.choices[i].request.continuation;
      requests.push_back(std::move(json));
    }
  }
  return requests;
}

std::vector<LogLikelihood> score_all(const PreparedTask& task, const TaskRun& run) {
  const std::vector<OrderedJson> requests = scored_requests(task, run);
  std::vector<LogLikelihood> results(requests.size());
  std::vector<size_t> open;
  std::vector<ScoredTokens> tokens;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (const OrderedJson* known = run.log.find(requests[i])) {
      results[i] = {known->value("log_likelihood", std::nan("")), known->value("is_greedy", false),
                    known->value("tokens", int64_t{0})};
      continue;
    }
    open.push_back(i);
    tokens.push_back(task.scored[i]);
  }
  const auto n = std::ssize(requests);
  auto n_done = n - std::ssize(open);
  const auto on_done = [&](size_t index, const LogLikelihood& result) {
    const size_t i = open[index];
    results[i] = result;
    run.log.add(requests[i], {{"log_likelihood", result.sum},
                              {"is_greedy", result.is_greedy},
                              {"tokens", result.n_tokens}});
    if (run.on_progress) run.on_progress(++n_done, n);
  };
  try {
    score(run.model, tokens, on_done);
  } catch (const ScoreError& error) {
    fail_document(task.name, requests[open[error.index]].value("document", ""), error);
  }
  return results;
}

// The first of the largest.
size_t largest(const std::vector<double>& values) {
  return static_cast<size_t>(std::ranges::max_element(values) - values.begin());
}

Share share_right(const std::vector<double>& right) {
  return share_of(std::ranges::count(right, 1.0), std::ssize(right));
}

void score_choices(const PreparedTask& task, const std::vector<LogLikelihood>& results,
                   TaskResult& result) {
  int64_t n_norm = 0;
  size_t next = 0;
  for (const TaskDocument& document : task.data.documents) {
    std::vector<double> sums, by_character;
    for (const TaskChoice& choice : document.choices) {
      sums.push_back(results[next].sum);
      by_character.push_back(results[next++].sum /
                             static_cast<double>(std::max<int64_t>(1, choice.n_characters)));
    }
    result.right.push_back(static_cast<int64_t>(largest(sums)) == document.gold);
    n_norm += static_cast<int64_t>(largest(by_character)) == document.gold;
  }
  result.acc = share_right(result.right);
  if (task.data.has_norm) result.acc_norm = share_of(n_norm, result.n);
}

TaskResult run_scored(const PreparedTask& task, const TaskRun& run) {
  const std::vector<LogLikelihood> results = score_all(task, run);
  TaskResult result;
  result.n = std::ssize(task.data.documents);
  double sum = 0;
  for (const LogLikelihood& r : results) {
    result.log_likelihoods.push_back(r.sum);
    sum += r.sum;
  }
  for (int64_t i = 0; i < result.n; ++i) {
    const auto& choices = task.data.documents[static_cast<size_t>(i)].choices;
    result.documents.insert(result.documents.end(), choices.size(), i);
  }
  if (task.data.score == TaskScore::choice) {
    score_choices(task, results, result);
  } else if (task.data.score == TaskScore::last_word) {
    for (const LogLikelihood& r : results) result.right.push_back(r.is_greedy);
    result.acc = share_right(result.right);
    result.perplexity = std::exp(-sum / static_cast<double>(result.n));
  } else {
    size_t n_bytes = 0;
    for (const TaskDocument& document : task.data.documents) {
      for (const TaskChoice& c : document.choices) n_bytes += c.request.continuation.size();
    }
    result.bits_per_byte = -sum / std::log(2.0) / static_cast<double>(n_bytes);
  }
  return result;
}

std::vector<std::string> generate_all(const PreparedTask& task, const TaskRun& run) {
  std::vector<std::string> answers(task.prompts.size());
  std::vector<OrderedJson> requests;
  std::vector<size_t> open;
  for (size_t i = 0; i < answers.size(); ++i) {
    const TaskDocument& document = task.data.documents[i];
    requests.push_back(request_json(task, run, document.id));
    requests.back()["prompt"] = document.prompt;
    const OrderedJson* known = run.log.find(requests.back());
    if (known == nullptr) {
      open.push_back(i);
    } else {
      answers[i] = known->value("answer", "");
    }
  }
  std::vector<const std::vector<int32_t>*> texts;
  texts.reserve(open.size());
  for (const size_t i : open) texts.push_back(&task.prompts[i]);
  const size_t n_shared = open.size() < 2 ? 0 : common_prefix(texts);
  int64_t n_held = 0;
  if (n_shared > kShortestShared) {  // each prompt keeps a token of its own
    n_held = static_cast<int64_t>(n_shared) - 1;
    const auto prefix = std::span(*texts.front()).first(static_cast<size_t>(n_held));
    run.model.fill(std::vector{TextChunk{.tokens = prefix}});
    run.model.copy_prefix(n_held);
  }
  const GenerateOptions options{
      .max_tokens = run.limits.n_new, .stop_tokens = run.stop_tokens, .stop_texts = task.data.stop};
  const auto n_entries = static_cast<size_t>(run.model.n_entries());
  for (size_t first = 0; first < open.size(); first += n_entries) {
    const auto batch = std::span(open).subspan(first, std::min(n_entries, open.size() - first));
    std::vector<Prompt> prompts;
    for (const size_t i : batch) {
      prompts.push_back({.tokens = task.prompts[i], .n_held = n_held});
    }
    std::vector<Completion> completions;
    try {
      completions = generate(run.model, run.tokenizer, prompts, options);
    } catch (const Error& error) {
      fail_document(task.name, task.data.documents[batch.front()].id, error);
    }
    for (size_t k = 0; k < batch.size(); ++k) {
      answers[batch[k]] = completions[k].text;
      run.log.add(requests[batch[k]],
                  {{"answer", completions[k].text}, {"tokens", completions[k].tokens.size()}});
    }
    const auto n = std::ssize(answers);
    const auto n_open = static_cast<int64_t>(open.size() - first - batch.size());
    if (run.on_progress) run.on_progress(n - n_open, n);
  }
  return answers;
}

bool is_number(const std::string& text, const std::string& wanted) {
  const std::string plain = plain_number(text);
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  return !plain.empty() && *end == '\0' && value == std::strtod(wanted.c_str(), nullptr);
}

TaskResult run_generated(const PreparedTask& task, const TaskRun& run) {
  const std::vector<std::string> answers = generate_all(task, run);
  TaskResult result;
  result.n = std::ssize(answers);
  int64_t n_flexible = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const std::string& wanted = task.data.documents[i].answer;
    const std::string last = flexible_number(answers[i]);
    if (task.data.score == TaskScore::last_number) {
      result.right.push_back(is_number(last, wanted));
      continue;
    }
    const std::string strict = strict_number(answers[i]);
    result.right.push_back(!strict.empty() && plain_number(strict) == plain_number(wanted));
    n_flexible += !last.empty() && plain_number(last) == plain_number(wanted);
  }
  result.acc = share_right(result.right);
  if (task.data.score == TaskScore::gsm8k_number) {
    result.flexible = share_of(n_flexible, result.n);
  }
  return result;
}

void expect_known(const std::vector<int32_t>& ids, const TaskLimits& limits) {
  for (const int32_t id : ids) {
    if (limits.vocab == 0 || id < limits.vocab) continue;
    throw Error(ErrorCode::invalid_argument,
                "expected tokens below the model's vocabulary of {}, got {}: the tokenizer has "
                "more tokens than the model",
                limits.vocab, id);
  }
}

}  // namespace

Share share_of(int64_t n_right, int64_t n) {
  if (n == 0) return {};
  const double p = static_cast<double>(n_right) / static_cast<double>(n);
  if (n == 1) return {.value = p};
  return {p, std::sqrt(p * (1 - p) / static_cast<double>(n - 1))};
}

PairedDifference paired_difference(const std::vector<double>& a, const std::vector<double>& b,
                                   const std::vector<int64_t>& clusters) {
  CHECK(a.size() == b.size() && (clusters.empty() || clusters.size() == a.size()));
  if (a.empty()) return {};
  double sum = 0, squares = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] - b[i];
  const double n = static_cast<double>(a.size()), mean = sum / n;
  int64_t n_clusters = 0;
  double of_cluster = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    of_cluster += a[i] - b[i] - mean;
    const bool goes_on = i + 1 < a.size() && !clusters.empty() && clusters[i] == clusters[i + 1];
    if (goes_on) continue;
    squares += std::pow(std::exchange(of_cluster, 0), 2);
    ++n_clusters;
  }
  if (n_clusters < 2) return {.mean = mean};
  const auto g = static_cast<double>(n_clusters);
  return {mean, std::sqrt(g / (g - 1) * squares) / n};
}

PreparedTask prepare_task(const TaskQuery& query, const Tokenizer& tokenizer,
                          const TaskLimits& limits) {
  PreparedTask task;
  task.name = query.name;
  task.convention = query.convention;
  task.data = read_task(query);
  if (task.data.documents.empty()) {
    throw Error(ErrorCode::bad_data, "[tasks] {}: expected documents, got none", query.name);
  }
  if (!is_generated(task)) {
    for (const TaskDocument& document : task.data.documents) {
      for (const TaskChoice& choice : document.choices) {
        try {
          task.scored.push_back(scored_tokens(tokenizer, choice.request, limits.longest));
          expect_known(task.scored.back().context, limits);
          expect_known(task.scored.back().continuation, limits);
        } catch (const Error& error) {
          fail_document(task.name, document.id, error);
        }
      }
    }
    return task;
  }
  const int64_t most = std::max<int64_t>(1, limits.longest - limits.n_new);
  for (const TaskDocument& document : task.data.documents) {
    std::vector<int32_t> ids = tokenizer.prefix();
    try {
      tokenizer.encode(document.prompt, {}, ids);
      expect_known(ids, limits);
    } catch (const Error& error) {
      fail_document(task.name, document.id, error);
    }
    ids.erase(ids.begin(), ids.end() - std::min(most, std::ssize(ids)));
    task.prompts.push_back(std::move(ids));
  }
  return task;
}

int64_t capacity_of(const PreparedTask& task, const TaskLimits& limits) {
  int64_t most = 1;
  for (const ScoredTokens& tokens : task.scored) {
    most = std::max(most, std::ssize(tokens.context) + std::ssize(tokens.continuation) - 1);
  }
  for (const auto& prompt : task.prompts) {
    most = std::max(most, std::ssize(prompt) + limits.n_new);
  }
  return std::min(most, limits.longest);
}

TaskResult run_task(const PreparedTask& task, const TaskRun& run) {
  return is_generated(task) ? run_generated(task, run) : run_scored(task, run);
}

}  // namespace octet
