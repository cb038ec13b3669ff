#include "train/run_inputs.h"

#include <algorithm>

#include "train/run_setup.h"

namespace octet {

RunInputs::RunInputs(const RunConfig& config, const ModelSpec& spec) {
  const std::vector<WeightedLoss> losses = run_losses(config, spec);
  const BatchSize size{
      .batch = config.train.batch, .seq = config.model.seq, .documents = row_documents(config)};
  all = batch_inputs(spec, size, losses);
  rows_per_sample = octet::rows_per_sample(losses);
  hides_tokens = std::ranges::any_of(
      losses, [](const WeightedLoss& one) { return find_loss(one.name)->hides_tokens; });
  compares_answers = std::ranges::any_of(
      losses, [](const WeightedLoss& one) { return find_loss(one.name)->compares_answers; });
}

std::vector<InputSpec> RunInputs::brought() const {
  std::vector<InputSpec> inputs;
  for (const InputSpec& input : all) {
    if (!std::ranges::count(completed_inputs(), input.name)) inputs.push_back(input);
  }
  return inputs;
}

std::vector<std::string> RunInputs::names() const {
  std::vector<std::string> names;
  for (const InputSpec& input : brought()) names.push_back(input.name);
  return names;
}

const InputSpec* RunInputs::find(std::string_view name) const {
  const auto at = std::ranges::find(all, name, &InputSpec::name);
  return at == all.end() ? nullptr : &*at;
}

}  // namespace octet
