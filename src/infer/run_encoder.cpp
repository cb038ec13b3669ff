#include "infer/run_encoder.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/integer.h"
#include "infer/batch_inputs.h"
#include "infer/inference.h"
#include "infer/recomputed_model.h"

namespace octet {
namespace {

constexpr int64_t kSeqStep = 8;  // few lengths, so that few functions are compiled

// Rows that are computed together: indices, and the size of their function.
struct RowGroup {
  std::vector<size_t> rows;
  BatchSize size;
};

std::vector<RowGroup> group_by_length(std::span<const EncodedTexts> rows, const EncoderCall& call) {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // The longest first: a machine too small for them says so at once.
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return rows[i].ids.size(); });
  std::vector<RowGroup> groups;
  for (size_t first = 0; first < order.size(); first += static_cast<size_t>(call.batch)) {
    const size_t end = std::min(order.size(), first + static_cast<size_t>(call.batch));
    const int64_t longest = std::ssize(rows[order[first]].ids);
    const int64_t seq = ceil_div(longest, kSeqStep) * kSeqStep;
    groups.push_back({.rows = {order.begin() + static_cast<int64_t>(first),
                               order.begin() + static_cast<int64_t>(end)},
                      .size = {.batch = static_cast<int64_t>(end - first),
                               .seq = std::min(seq, call.max_tokens)}});
  }
  return groups;
}

Batch batch_of(const RowGroup& group, std::span<const EncodedTexts> rows, int64_t n_types) {
  Batch batch{.batch = group.size.batch, .seq = group.size.seq};
  batch.add(tokens_input());
  batch.add(token_types_input(n_types));
  for (size_t i = 0; i < group.rows.size(); ++i) {
    const EncodedTexts& row = rows[group.rows[i]];
    const auto at = static_cast<int64_t>(i) * batch.seq;
    std::ranges::copy(row.ids, batch.ints("tokens").begin() + at);
    std::ranges::copy(row.types, batch.ints("token_types").begin() + at);
    batch.lengths.push_back(std::ssize(row.ids));
  }
  batch.lengths.resize(static_cast<size_t>(batch.batch), 1);  // rows that nobody asked for
  return batch;
}

void run_group(Inference& model, const RowGroup& group, std::span<const EncodedTexts> rows,
               const std::string& output, const VisitRow& visit) {
  BoundPlan& function = model.function(function::logits, group.size);
  upload(function, batch_of(group, rows, model.spec().token_types));
  function.run();
  const int64_t n_tokens = group.size.batch * group.size.seq;
  const std::vector<float> all = model.read_rows(function, output, 0, n_tokens);
  const size_t width = all.size() / static_cast<size_t>(n_tokens);
  for (size_t i = 0; i < group.rows.size(); ++i) {
    const size_t first = i * static_cast<size_t>(group.size.seq) * width;
    visit(group.rows[i], std::span(all).subspan(first, rows[group.rows[i]].ids.size() * width));
  }
}

std::vector<FunctionKey> functions_of(const std::vector<int64_t>& lengths, int64_t batch) {
  std::vector<FunctionKey> keys;
  for (const int64_t seq : lengths) {
    keys.push_back({function::logits, {.batch = batch, .seq = seq}});
    if (batch > 1) keys.push_back({function::logits, {.batch = 1, .seq = seq}});
  }
  return keys;
}

}  // namespace

EncoderModel::EncoderModel(const ModelSource& source, const EncoderCall& call,
                           const TextMachine& machine)
    : call_(call),
      model_(source, functions_of(RecomputedModel::padded_lengths(1, call.max_tokens), call.batch),
             machine) {}

void EncoderModel::run(std::span<const EncodedTexts> rows, const VisitRow& visit) {
  for (RowGroup& group : group_by_length(rows, call_)) {
    group.size.seq = RecomputedModel::padded_length(group.size.seq, call_.max_tokens);
    if (group.size.batch > 1) group.size.batch = call_.batch;
    run_group(model_, group, rows, call_.output, visit);
  }
}

void run_encoder(const ModelSource& source, std::span<const EncodedTexts> rows,
                 const EncoderCall& call, const TextMachine& machine, const VisitRow& visit) {
  if (rows.empty()) return;
  const std::vector<RowGroup> groups = group_by_length(rows, call);
  std::set<FunctionKey> keys;
  for (const RowGroup& group : groups) keys.insert({function::logits, group.size});
  const std::vector<FunctionKey> functions(keys.rbegin(), keys.rend());
  Inference model(source, functions, machine);
  int64_t n_done = 0;
  for (const RowGroup& group : groups) {
    run_group(model, group, rows, call.output, visit);
    n_done += group.size.batch;
    if (call.on_progress) call.on_progress(n_done, std::ssize(rows));
  }
}

}  // namespace octet
