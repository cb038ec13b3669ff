// Decides how a model is quantized, site by site, each with the inputs that the model has when all
// before it is quantized.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "nn/model.h"
#include "ptq/linears.h"
#include "ptq/options.h"
#include "ptq/simulate.h"
#include "ptq/walk.h"

namespace octet {

// A line of the table that tells what happened to a linear, or a residual sum's operand.
struct SiteReport {
  std::string name = {};
  double weight_scale_min = 0, weight_scale_max = 0;  // 0: no weight
  std::optional<double> input_scale = {};             // fixed
  std::optional<double> alpha = {};                   // smoothquant, where it smoothed
  QuantizationError weight = {}, input = {};
  double output_snr_db = 0;  // of linears
};

struct QuantizedLinear {
  PtqLinear linear = {};
  QuantizedWeight weight = {};
  std::optional<ActivationQuantizer> input = {};
  SiteReport report = {};
};

// Decisions at one site.
struct SiteResult {
  std::vector<QuantizedLinear> linears;
  std::map<std::string, std::vector<float>> norms;       // parameters that smoothing changed
  std::vector<float> divisor;                            // of x, by channel, where it smoothed
  std::map<std::string, ActivationQuantizer> residuals;  // by residual_name
  std::vector<SiteReport> sums;
};

// Source and destination of the results of a run that was interrupted.
struct SiteStore {
  std::function<std::optional<SiteResult>(size_t site)> load;
  std::function<void(size_t site, const SiteResult& result)> save;
};

struct CalibrateInputs {
  const Graph& graph;  // typed, f32
  std::vector<PtqSite> sites;
  std::vector<Batch> rows;
  ModelWalk::ReadParameter read;
  // Rounds the values of a parameter to what its file will hold.
  std::function<void(const std::string& name, std::span<float> values)> round;
};

struct CalibrateHooks {
  Log log = {};
  std::function<void(size_t site, size_t n_sites, const SiteResult& result)> on_site = {};
  SiteStore store = {};
};

// In the order of the sites. Throws Error{numerics} that names the site and the operand where what
// calibration rows give is NaN or Inf, whatever the method; Error{bad_data} for such weights.
std::vector<SiteResult> calibrate(CalibrateInputs inputs, const PtqOptions& options,
                                  Backend& backend, const CalibrateHooks& hooks);

}  // namespace octet
