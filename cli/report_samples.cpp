#include "cli/report_samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/csv.h"
#include "cli/markup.h"
#include "cli/page.h"
#include "train/run_samples.h"

namespace octet {
namespace {

std::string shown_text(const TextSample& sample) {
  return sample.text + (sample.stop == "length" ? " ..." : "");
}

// In the data, and as a row of the table.
size_t page_bytes(const RunData& run, const TextSample& sample) {
  constexpr size_t kTags = 80;
  const std::string text = shown_text(sample);
  return page_json(OrderedJson(text)).size() + markup_text(text).size() +
         markup_text(sample.prompt).size() + markup_text(run.name).size() + kTags;
}

// First sample of the step whose samples end before `end`; they are in the order of their steps.
size_t begin_of_step(const std::vector<TextSample>& samples, size_t end) {
  size_t begin = end;
  while (begin > 0 && samples[begin - 1].step == samples[end - 1].step) --begin;
  return begin;
}

// The first column of this prompt that a row has no text in; a new one where there is none.
size_t column_of(const std::string& prompt, const OrderedJson& texts,
                 std::vector<std::string>& prompts) {
  size_t column = 0;
  const auto is_free = [&] { return column >= texts.size() || texts[column].is_null(); };
  while (column < prompts.size() && (prompts[column] != prompt || !is_free())) ++column;
  if (column == prompts.size()) prompts.push_back(prompt);
  return column;
}

}  // namespace

ShownSamples last_samples(const std::vector<RunData>& runs, size_t n_bytes) {
  std::vector<size_t> first;
  first.reserve(runs.size());
  for (const RunData& run : runs) first.push_back(run.samples.size());
  size_t bytes = 0;
  for (bool is_last_step = true;; is_last_step = false) {
    std::vector<size_t> from;
    for (size_t i = 0; i < runs.size(); ++i) {
      from.push_back(begin_of_step(runs[i].samples, first[i]));
      for (size_t k = from[i]; k < first[i]; ++k) bytes += page_bytes(runs[i], runs[i].samples[k]);
    }
    if (from == first || (!is_last_step && bytes > n_bytes)) break;
    first = from;
  }
  ShownSamples shown;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& all = runs[i].samples;
    shown.runs.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(first[i]), all.end());
    shown.n_shown += all.size() - first[i];
    shown.n_samples += all.size();
  }
  return shown;
}

OrderedJson samples_json(const ShownSamples& samples) {
  OrderedJson runs = OrderedJson::array();
  for (size_t run = 0; run < samples.runs.size(); ++run) {
    if (samples.runs[run].empty()) continue;
    std::vector<std::string> prompts;
    OrderedJson rows = OrderedJson::array();
    for (const TextSample& sample : samples.runs[run]) {
      if (rows.empty() || rows.back()["step"] != sample.step)
        rows.push_back({{"step", sample.step}, {"texts", OrderedJson::array()}});
      OrderedJson& texts = rows.back()["texts"];
      texts[column_of(sample.prompt, texts, prompts)] = shown_text(sample);
    }
    runs.push_back({{"run", run}, {"prompts", prompts}, {"rows", rows}});
  }
  return {{"shown", samples.n_shown}, {"of", samples.n_samples}, {"runs", runs}};
}

Table samples_table(const std::vector<RunData>& runs, const ShownSamples& samples) {
  Table table{{"run", "step", "prompt", "text"}, {}};
  for (size_t run = 0; run < samples.runs.size(); ++run) {
    for (const TextSample& sample : samples.runs[run])
      table.rows.push_back(
          {runs[run].name, fmt::to_string(sample.step), sample.prompt, shown_text(sample)});
  }
  return table;
}

std::string samples_title(const ShownSamples& samples) {
  return samples.n_shown == samples.n_samples
             ? "Samples"
             : fmt::format("Samples: the last {} of {}", samples.n_shown, samples.n_samples);
}

std::string samples_csv(const std::vector<RunData>& runs) {
  std::string out = csv_row({"run", "recipe", "seed", "step", "prompt", "text", "stop"});
  for (const RunData& run : runs) {
    for (const TextSample& sample : run.samples)
      out += csv_row({run.name, run.recipe, run.seed(), fmt::to_string(sample.step), sample.prompt,
                      sample.text, sample.stop});
  }
  return out;
}

}  // namespace octet
