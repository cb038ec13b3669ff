#include "ptq/calibrate.h"

#include <algorithm>

#include "base/error.h"
#include "ptq/site.h"

namespace octet {
namespace {

class Calibration {
 public:
  Calibration(CalibrateInputs inputs, const PtqOptions& options, Backend& backend, const Log& log)
      : inputs_(std::move(inputs)),
        options_(options),
        quantizer_(options, backend, log),
        exact_walk_(inputs_.graph, inputs_.rows, backend, inputs_.read),
        walk_(inputs_.graph, std::move(inputs_.rows), backend,
              [this](const std::string& name) { return parameter(name); }) {}

  std::vector<SiteResult> run(const CalibrateHooks& hooks) {
    std::vector<SiteResult> results;
    FakeQuantizeInputs decided;  // at the site before
    for (size_t i = 0; i < inputs_.sites.size(); ++i) {
      const PtqSite& site = inputs_.sites[i];
      walk_.run_to(site.first, site.reads, decided);
      results.push_back(decide(site, i, hooks));
      decided = take(site, results.back());
      if (hooks.on_site) hooks.on_site(i, inputs_.sites.size(), results.back());
    }
    return results;
  }

 private:
  std::vector<float> parameter(const std::string& name) const {
    const auto changed = changed_.find(name);
    return changed == changed_.end() ? inputs_.read(name) : changed->second;
  }

  static std::vector<std::span<float>> batches(ModelWalk& walk, ValueId value) {
    std::vector<std::span<float>> result;
    for (size_t i = 0; i < walk.n_batches(); ++i) result.push_back(walk.value(value, i));
    return result;
  }

  SiteResult decide(const PtqSite& site, size_t i, const CalibrateHooks& hooks) {
    if (hooks.store.load) {
      if (auto stored = hooks.store.load(i)) {
        if (!stored->divisor.empty()) {
          divide_inputs(batches(walk_, site.reads.front()), stored->divisor);
        }
        return std::move(*stored);
      }
    }
    SiteInputs inputs = inputs_of(site);
    SiteResult result = quantizer_.quantize(inputs);
    if (hooks.store.save) hooks.store.save(i, result);
    return result;
  }

  SiteInputs inputs_of(const PtqSite& site) {
    SiteInputs inputs{.site = site, .x = batches(walk_, site.reads.front())};
    if (site.reads.size() > 1) inputs.b = batches(walk_, site.reads[1]);
    inputs.exact_x = inputs.x;
    if (options_.target == ErrorTarget::unquantized && !site.linears.empty()) {
      exact_walk_.run_to(site.first, site.reads, {});
      inputs.exact_x = batches(exact_walk_, site.reads.front());
    }
    inputs.n_cols = inputs_.graph.type(site.reads.front()).shape.back();
    for (const PtqLinear& linear : site.linears) {
      std::vector<float> w = parameter(linear.weight);
      if (amax(w).nonfinite) {
        throw Error(ErrorCode::bad_data, "[ptq] '{}': expected finite weights, got NaN or Inf",
                    linear.weight);
      }
      if (linear.is_in_out) w = transposed(w, {linear.n_in, linear.n_out});
      inputs.weights.push_back(std::move(w));
    }
    if (!site.norm.weight.empty()) inputs.norm_weight = parameter(site.norm.weight);
    if (!site.norm.bias.empty()) inputs.norm_bias = parameter(site.norm.bias);
    inputs.round_norm = [this, name = site.norm.weight](std::span<float> values) {
      inputs_.round(name, values);
    };
    return inputs;
  }

  // Results that the rest of the walk is to know: the weights as they now are.
  FakeQuantizeInputs take(const PtqSite& site, const SiteResult& result) {
    FakeQuantizeInputs decided;
    for (const QuantizedLinear& q : result.linears) {
      std::vector<float> w = dequantized(q.weight);
      if (q.linear.is_in_out) w = transposed(w, q.weight.shape);
      changed_[q.linear.weight] = std::move(w);
      if (q.input) decided.linears.emplace(q.linear.weight, *q.input);
    }
    // A piece of the graph has its sums counted from its own beginning.
    for (const char letter : {'a', 'b'}) {
      const auto sum = result.residuals.find(residual_name(site.layer, site.sum, letter));
      if (sum == result.residuals.end()) continue;
      decided.residuals.emplace(residual_name(site.layer, 0, letter), sum->second);
    }
    return decided;
  }

  CalibrateInputs inputs_;
  const PtqOptions& options_;
  SiteQuantizer quantizer_;
  ModelWalk exact_walk_;  // of the model as it was; runs where its values are asked for
  ModelWalk walk_;
  std::map<std::string, std::vector<float>> changed_;
};

}  // namespace

std::vector<SiteResult> calibrate(CalibrateInputs inputs, const PtqOptions& options,
                                  Backend& backend, const CalibrateHooks& hooks) {
  return Calibration(std::move(inputs), options, backend, hooks.log).run(hooks);
}

}  // namespace octet
