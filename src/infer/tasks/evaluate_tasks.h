// Runs evaluation tasks on a model, and scores the answers.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "infer/tasks/request_log.h"
#include "infer/tasks/task.h"
#include "infer/text_model.h"
#include "text/tokenizer.h"

namespace octet {

// A share of n documents, and its standard error sqrt(p (1 - p) / (n - 1)); NaN of fewer than two.
struct Share {
  double value = 0, error = std::numeric_limits<double>::quiet_NaN();
};
Share share_of(int64_t n_right, int64_t n);

struct TaskResult {
  int64_t n = 0;                        // documents
  std::optional<Share> acc;             // right choices or words, or numbers in the strict sense
  std::optional<Share> acc_norm;        // by log-likelihood per character
  std::optional<Share> flexible;        // gsm8k: the last number
  std::optional<double> perplexity;     // exp(-mean log-likelihood)
  std::optional<double> bits_per_byte;  // of the continuations
  std::vector<double> log_likelihoods;  // of all requests, in order
  std::vector<int64_t> documents;       // that these are of, counted
  std::vector<double> right;            // 1 or 0 a document where acc is there, whose mean it is
};

// A mean of n paired differences d and its standard error. Those of one cluster, a document whose
// context several requests share, are not independent: with G clusters, m the mean of all,
//   error = sqrt(G / (G - 1) * sum over clusters of (sum of their d - m)^2) / n,
// which for clusters of one is the usual sqrt(sum (d - m)^2 / (n - 1) / n); NaN for a single
// cluster. Source: Liang & Zeger 1986; Cameron & Miller 2015.
//   clusters: of each pair, ascending; empty: each pair is one
struct PairedDifference {
  double mean = 0, error = std::numeric_limits<double>::quiet_NaN();
};
PairedDifference paired_difference(const std::vector<double>& a, const std::vector<double>& b,
                                   const std::vector<int64_t>& clusters = {});

// A task with its requests as tokens.
struct PreparedTask {
  std::string name;
  Convention convention = Convention::lm_eval;
  TaskData data;
  std::vector<ScoredTokens> scored;           // all choices of all documents, in order
  std::vector<std::vector<int32_t>> prompts;  // of documents with generated answers
};

struct TaskLimits {
  int64_t longest = 0;  // tokens of a text that the model takes
  int64_t n_new = 256;  // of a generated answer, at most
  int64_t vocab = 0;    // tokens of the model; 0: not asked
};
PreparedTask prepare_task(const TaskQuery& query, const Tokenizer& tokenizer,
                          const TaskLimits& limits);
// Most tokens that the model holds at a time.
int64_t capacity_of(const PreparedTask& task, const TaskLimits& limits);

struct TaskRun {
  TextModel& model;
  const Tokenizer& tokenizer;
  std::vector<int32_t> stop_tokens;
  RequestLog& log;
  std::string recipe;
  std::string settings;  // what else answers depend on (request_log.h)
  TaskLimits limits;
  OnProgress on_progress = {};
};
TaskResult run_task(const PreparedTask& task, const TaskRun& run);

// The number of an answer; empty where there is none. Exposed for tests.
std::string strict_number(const std::string& answer);    // behind "#### "
std::string flexible_number(const std::string& answer);  // the last one
// Without ",", "$", a final ".", and what stands before "#### ".
std::string plain_number(std::string number);

}  // namespace octet
