#include "ptq/ptq.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "infer/inference.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/simplify.h"
#include "ptq/progress.h"

namespace octet {
namespace {

constexpr int64_t kBatchRows = 8;  // at a time

// What decides the results, as text.
std::string identity_of(const PtqRequest& request) {
  const PtqOptions& o = request.options;
  Xxh64 hash;
  for (const Batch& batch : request.rows) hash.update(std::as_bytes(std::span(batch.tokens)));
  Json json = {{"model", request.source.weights},
               {"format", std::string(enum_name(o.format))},
               {"method", std::string(enum_name(o.method))},
               {"weights", std::string(enum_name(*o.weights))},
               {"activations", std::string(enum_name(*o.activations))},
               {"keep", o.keep},
               {"percentile", o.percentile},
               {"residual", o.residual},
               {"bias", o.exponent_bias.value_or(0)},
               {"damping", o.damping},
               {"tokens", fmt::format("{:016x}", hash.digest())}};
  const bool searches = o.method == PtqMethod::algorithm1 || o.method == PtqMethod::smoothquant;
  if (searches) json["searched"] = "all rows";
  if (o.target) json["target"] = std::string(enum_name(*o.target));
  return json.dump(2) + "\n";
}

Graph forward_graph(const ModelSpec& spec, const Batch& rows) {
  const BatchSize size{.batch = rows.batch, .seq = rows.seq};
  const Graph logical = simplify(build_model(spec, size, ModelOutputs::logits).graph);
  const Recipe& recipe = find_recipe("fp32");
  return recipe.apply(recipe, logical, {});
}

void check_source(const ModelSource& source, const ExportWeights& weights) {
  check_exportable(source.spec);
  for (const ParameterSpec& p : weights.parameters()) {
    if (weights.compute().scales(p.name) == nullptr) continue;
    throw Error(ErrorCode::bad_data,
                "[ptq] '{}': expected weights in F32, BF16 or F16, got '{}' in 8 bits",
                source.folder, p.name);
  }
}

void round_as_stored(const StoredTensor& tensor, std::span<float> values) {
  if (!tensor.dtype || *tensor.dtype == Dtype::f32) return;
  visit_format(*tensor.dtype, [&]<Dtype D>() {
    for (float& x : values) x = decode<D>(encode<D>(x));
  });
}

std::string site_name(const PtqSite& site) {
  if (site.linears.empty()) return fmt::format("layers.{}.residual.{}", site.layer, site.sum);
  std::string name = site.linears.front().name;
  for (size_t i = 1; i < site.linears.size(); ++i) {
    const std::string& other = site.linears[i].name;
    name += ", " + other.substr(other.rfind('.') + 1);
  }
  return name;
}

}  // namespace

std::vector<Batch> calibration_rows(const TokenStream& stream, int64_t samples, int64_t seq) {
  const int64_t n_rows = std::min(samples, stream.n_tokens() / seq);
  if (n_rows < 1) {
    throw Error(ErrorCode::bad_data, "[ptq] --calib: expected at least {} tokens, one row, got {}",
                seq, stream.n_tokens());
  }
  std::vector<Batch> rows;
  for (int64_t first = 0; first < n_rows; first += kBatchRows) {
    Batch batch = empty_batch(std::min(kBatchRows, n_rows - first), seq);
    std::vector<uint8_t> flags(batch.tokens.size());
    stream.read(first * seq, batch.tokens, flags);
    rows.push_back(std::move(batch));
  }
  return rows;
}

PtqResult quantize_model(Files& files, const PtqRequest& request, Backend& backend,
                         const PtqHooks& hooks) {
  const ModelSource& source = request.source;
  const PtqOptions& options = request.options;
  const ExportWeights weights(files, source);
  check_source(source, weights);
  const Graph graph = forward_graph(source.spec, request.rows.front());
  const std::vector<PtqSite> sites =
      find_sites(graph, {.keep = options.keep,
                         .head = std::string(model_def(source.spec.kind).head),
                         .residual = options.residual});
  PtqProgress progress(files, request.out, identity_of(request));
  if (progress.n_found() > 0) {
    hooks.log.info("{}: {} of {} sites were done before", request.out, progress.n_found(),
                   sites.size());
  }
  CalibrateHooks calibrate_hooks{.store = progress.store(sites)};
  if (hooks.on_site) {
    calibrate_hooks.on_site = [&](size_t i, size_t n, const SiteResult&) {
      hooks.on_site(i, n, site_name(sites[i]));
    };
  }
  const auto results =
      calibrate({.graph = graph,
                 .sites = sites,
                 .rows = request.rows,
                 .read = [&](const std::string& name) { return weights.compute().read(name); },
                 .round =
                     [&](const std::string& name, std::span<float> values) {
                       round_as_stored(weights.compute().stored(name), values);
                     }},
                options, backend, calibrate_hooks);
  const PtqModel model{source, weights, results, options};
  PtqResult result{.reports = {},
                   .layout = request.dequantize ? PtqLayout::dequantized : layout_of(model)};
  for (const SiteResult& site : results) {
    for (const QuantizedLinear& q : site.linears) result.reports.push_back(q.report);
    result.reports.insert(result.reports.end(), site.sums.begin(), site.sums.end());
  }
  result.n_bytes = write_quantized(files, model, result.layout, request.out, hooks.log).n_bytes;
  progress.remove();
  return result;
}

}  // namespace octet
