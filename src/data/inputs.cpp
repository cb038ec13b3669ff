#include "data/inputs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace octet {
namespace {

// The end in its row of each token's document, or of the row's tokens.
std::vector<int32_t> key_ends_of(const Batch& batch) {
  const std::vector<int32_t>& starts = batch.ints("doc_starts");
  std::vector<int32_t> ends(static_cast<size_t>(batch.batch * batch.seq));
  for (int64_t row = 0; row < batch.batch; ++row) {
    const int64_t n = batch.lengths.empty() ? batch.seq : batch.lengths[static_cast<size_t>(row)];
    auto end = static_cast<int32_t>(n);
    for (int64_t t = batch.seq; t-- > 0;) {
      const auto i = static_cast<size_t>(row * batch.seq + t);
      if (t >= n) {
        ends[i] = static_cast<int32_t>(starts.empty() ? n : batch.seq);
        continue;
      }
      ends[i] = end;
      if (!starts.empty() && starts[i] == t) end = static_cast<int32_t>(t);
    }
  }
  return ends;
}

}  // namespace

int64_t InputSpec::n_inner() const {
  int64_t n = 1;
  for (const int64_t extent : inner) n *= extent;
  return n;
}

int64_t RowDims::count(Per per) const {
  switch (per) {
    case Per::token:
      return rows * seq;
    case Per::row:
      return rows;
    case Per::sample:
      return rows / rows_per_sample;
  }
  return 0;
}

const HostTensor* Batch::find(std::string_view name) const {
  const auto at =
      std::ranges::find_if(tensors, [&](const HostTensor& one) { return one.spec.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

HostTensor* Batch::find(std::string_view name) {
  return const_cast<HostTensor*>(std::as_const(*this).find(name));
}

const std::vector<int32_t>& Batch::ints(std::string_view name) const& {
  static const std::vector<int32_t> none;
  const HostTensor* tensor = find(name);
  return tensor == nullptr ? none : std::get<std::vector<int32_t>>(tensor->values);
}

const std::vector<float>& Batch::reals(std::string_view name) const& {
  static const std::vector<float> none;
  const HostTensor* tensor = find(name);
  return tensor == nullptr ? none : std::get<std::vector<float>>(tensor->values);
}

std::vector<int32_t>& Batch::ints(std::string_view name) & {
  HostTensor* tensor = find(name);
  CHECK(tensor != nullptr);
  return std::get<std::vector<int32_t>>(tensor->values);
}

std::vector<float>& Batch::reals(std::string_view name) & {
  HostTensor* tensor = find(name);
  CHECK(tensor != nullptr);
  return std::get<std::vector<float>>(tensor->values);
}

HostTensor& Batch::add(const InputSpec& spec) {
  CHECK(find(spec.name) == nullptr);
  const auto n = static_cast<size_t>(dims().count(spec.per) * spec.n_inner());
  if (spec.type == HostType::real) {
    tensors.push_back({spec, std::vector<float>(n, spec.fill == Fill::ignored ? NAN : 0.0f), {}});
  } else {
    tensors.push_back(
        {spec, std::vector<int32_t>(n, spec.fill == Fill::ignored ? kIgnoredLabel : 0), {}});
  }
  return tensors.back();
}

void Batch::set(const InputSpec& spec, HostValues values) {
  const auto n = static_cast<size_t>(dims().count(spec.per) * spec.n_inner());
  CHECK(std::visit([](const auto& list) { return list.size(); }, values) == n);
  CHECK(std::holds_alternative<std::vector<float>>(values) == (spec.type == HostType::real));
  if (HostTensor* known = find(spec.name)) {
    *known = {spec, std::move(values), {}};
  } else {
    tensors.push_back({spec, std::move(values), {}});
  }
}

std::vector<bool> Batch::counts(std::string_view counted) const {
  const bool is_rows = counted == "rows";
  if (is_rows || counted == "samples") {
    const int64_t n_rows = is_rows ? 1 : rows_per_sample;
    std::vector<bool> result(static_cast<size_t>(batch / n_rows), true);
    for (const int64_t row : fillers) result[static_cast<size_t>(row / n_rows)] = false;
    return result;
  }
  if (const HostTensor* tensor = find(counted); tensor && tensor->spec.type == HostType::real) {
    std::vector<bool> result;
    for (const float x : reals(counted)) result.push_back(!std::isnan(x));
    return result;
  }
  const std::vector<int32_t>& labels = ints(counted);
  std::vector<bool> result(labels.size());
  for (size_t i = 0; i < labels.size(); ++i) result[i] = labels[i] != kIgnoredLabel;
  return result;
}

int64_t Batch::n_items(std::string_view counted) const {
  const std::vector<bool> items = counts(counted);
  return std::ranges::count(items, true);
}

InputSpec tokens_input() {
  return {.name = "tokens"};
}
InputSpec positions_input() {
  return {.name = "positions"};
}
InputSpec doc_starts_input() {
  return {.name = "doc_starts"};
}
InputSpec key_ends_input() {
  return {.name = "key_ends"};
}
InputSpec fillers_input() {
  return {.name = "fillers", .per = Per::sample, .type = HostType::real};
}
InputSpec token_types_input(int64_t n_types) {
  return {.name = "token_types", .bound = n_types};
}
InputSpec pictures_input(std::vector<int64_t> inner) {
  return {.name = "pictures", .per = Per::row, .inner = std::move(inner), .type = HostType::real};
}
InputSpec merged_rows_input() {
  return {.name = "merged_rows"};
}
InputSpec token_labels_input() {
  return {.name = "labels", .fill = Fill::ignored};
}
InputSpec row_label_input(std::string name) {
  return {.name = std::move(name), .per = Per::row, .fill = Fill::ignored};
}

Batch text_batch(int64_t rows, int64_t seq, std::vector<int32_t> tokens,
                 std::vector<int32_t> labels, std::vector<int32_t> doc_starts) {
  Batch batch{.batch = rows, .seq = seq};
  batch.set(tokens_input(), std::move(tokens));
  batch.set(token_labels_input(), std::move(labels));
  if (!doc_starts.empty()) batch.set(doc_starts_input(), std::move(doc_starts));
  return batch;
}

std::vector<int32_t> positions_of(int64_t rows, int64_t seq, const PositionRule& rule) {
  std::vector<int32_t> positions(static_cast<size_t>(rows * seq));
  for (int64_t row = 0; row < rows; ++row) {
    const auto r = static_cast<size_t>(row);
    const int64_t first = rule.first.empty() ? 0 : rule.first[r];
    const int64_t last = (rule.held.empty() ? seq : rule.held[r]) - 1;
    for (int64_t t = 0; t < seq; ++t) {
      const auto i = static_cast<size_t>(row * seq + t);
      const auto column = static_cast<int32_t>(first + std::min(t, std::max<int64_t>(last, 0)));
      positions[i] = rule.starts.empty() ? column : column - rule.starts[i];
    }
  }
  return positions;
}

const std::vector<std::string>& completed_inputs() {
  static const std::vector<std::string> names = {
      "positions", "key_ends", "doc_starts", "token_types", "fillers", "merged_rows", "pictures"};
  return names;
}

void complete(Batch& batch, std::string_view name) {
  if (name == "fillers" && batch.find(name) == nullptr) {
    std::vector<float> fillers;
    for (const bool is_held : batch.counts("samples")) fillers.push_back(is_held ? 0.0f : 1.0f);
    return batch.set(fillers_input(), std::move(fillers));
  }
  const bool has_tokens = std::ranges::any_of(
      batch.tensors, [](const HostTensor& one) { return one.spec.per == Per::token; });
  if (!has_tokens || batch.find(name) != nullptr) return;
  if (name == "positions") {
    const PositionRule rule{.starts = std::as_const(batch).ints("doc_starts")};
    batch.set(positions_input(), positions_of(batch.batch, batch.seq, rule));
  } else if (name == "key_ends") {
    batch.set(key_ends_input(), key_ends_of(batch));
  } else if (name == "doc_starts") {
    batch.add(doc_starts_input());
  } else if (name == "token_types") {
    batch.add(token_types_input());
  } else if (name == "merged_rows") {
    std::vector<int32_t> own(static_cast<size_t>(batch.batch * batch.seq));
    std::iota(own.begin(), own.end(), 0);
    batch.set(merged_rows_input(), std::move(own));
  }
}

void complete(Batch& batch) {
  for (const std::string& name : completed_inputs()) complete(batch, name);
}

}  // namespace octet
