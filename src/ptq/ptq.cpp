#include "ptq/ptq.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "infer/adapter_note.h"
#include "infer/inference.h"
#include "nn/hf_config.h"
#include "nn/vision.h"
#include "ptq/progress.h"
#include "ptq/walk.h"

namespace octet {
namespace {

constexpr int64_t kBatchRows = 8;  // at a time
constexpr int kDecisions = 2;      // counts changes of what is decided of the same request

// Inputs that data bring to a model that sees pictures, and that are completed without.
bool shows_pictures(const InputSpec& input) {
  return input.name == merged_rows_input().name || input.name == "pictures";
}

// Hash of inputs that the data brought: neither what follows from others nor what a loss reads.
std::string hash_of_rows(const std::vector<Batch>& rows, const ModelSpec& spec) {
  const std::vector<InputSpec> inputs = model_def(spec.kind).inputs(spec, {});
  Xxh64 hash;
  for (const Batch& batch : rows) {
    for (const InputSpec& input : inputs) {
      const HostTensor* tensor = batch.find(input.name);
      const bool follows = std::ranges::count(completed_inputs(), input.name) > 0;
      if (tensor == nullptr || (follows && !shows_pictures(input))) continue;
      std::visit([&](const auto& values) { hash.update(values); }, tensor->values);
    }
  }
  return fmt::format("{:016x}", hash.digest());
}

// Values that decide the results, by name: weights and shape of the model, rows, options.
Json identity_of(const PtqRequest& request, const ModelSpec& spec, const ExportWeights& weights) {
  const PtqOptions& o = request.options;
  Xxh64 shape;
  int64_t n_rows = 0;
  for (const Batch& batch : request.rows) n_rows += batch.batch;
  shape.update(hf_config_text(spec));
  Json json = {{"decisions", kDecisions},
               {"weights_hash", weights_hash(weights.compute(), spec)},
               {"config_hash", fmt::format("{:016x}", shape.digest())},
               {"tokens_hash", hash_of_rows(request.rows, spec)},
               {"rows", n_rows},
               {"seq", request.rows.front().seq},
               {"rope_seq", spec.rope_seq},
               {"format", enum_name(o.format)},
               {"method", enum_name(o.method)},
               {"weights", enum_name(*o.weights)},
               {"activations", enum_name(*o.activations)},
               {"keep", o.keep},
               {"percentile", o.percentile},
               {"residual", o.residual},
               {"bias", o.exponent_bias.value_or(0)},
               {"damping", o.damping},
               {"share_inputs", o.share_inputs}};
  if (o.target) json["target"] = enum_name(*o.target);
  return json;
}

void check_source(const ModelSource& source, const ExportWeights& weights) {
  check_exportable(source.spec);
  if (const ModelDef& def = model_def(source.spec.kind); def.is_recurrent) {
    throw Error(ErrorCode::invalid_argument,
                "[ptq] expected a model whose linears each run once, got {}, which runs some at "
                "every step of a text",
                def.name);
  }
  for (const ParameterSpec& p : weights.parameters()) {
    if (weights.compute().scales(p.name) == nullptr) continue;
    throw Error(ErrorCode::bad_data,
                "[ptq] '{}': expected weights in F32, BF16 or F16, got '{}' in 8 bits",
                source.folder, p.name);
  }
}

// The pictures of rows with fewer than a row has room for are repeated in the places of those that
// are not there, so that nothing is measured of zeros: no token reads these places. Throws
// Error{bad_data} where there is no picture at all.
std::vector<Batch> with_repeated_pictures(std::vector<Batch> rows, const ModelSpec& spec) {
  struct Place {
    size_t batch = 0, first = 0;  // first: of its values
  };
  std::vector<Place> held, others;
  const InputSpec pictures = pictures_of(spec);
  const auto n_values = static_cast<size_t>(pictures.n_inner() / spec.images);
  for (size_t b = 0; b < rows.size(); ++b) {
    const Batch& batch = rows[b];
    std::vector<bool> is_read(static_cast<size_t>(batch.batch * spec.images));
    for (const int32_t row : batch.ints(merged_rows_input().name)) {
      const int64_t of_pictures = row - batch.batch * batch.seq;
      if (of_pictures >= 0) is_read[static_cast<size_t>(of_pictures / picture_rows(spec))] = true;
    }
    for (size_t i = 0; i < is_read.size(); ++i)
      (is_read[i] ? held : others).push_back({.batch = b, .first = i * n_values});
  }
  if (held.empty()) {
    throw Error(ErrorCode::bad_data,
                "[ptq] --calib: expected conversations with pictures, by which the inputs of the "
                "tower are calibrated, got none (--keep 'vision.*' --keep 'projector.*' leaves "
                "tower and projector as they are)");
  }
  for (size_t i = 0; i < others.size(); ++i) {
    const Place from = held[i % held.size()], to = others[i];
    const auto source = rows[from.batch].reals(pictures.name).begin();
    const auto first = source + static_cast<int64_t>(from.first);
    std::copy_n(first, n_values,
                rows[to.batch].reals(pictures.name).begin() + static_cast<int64_t>(to.first));
  }
  return rows;
}

bool reads_pictures(const std::vector<PtqSite>& sites, const Graph& graph) {
  const std::vector<bool> is_of_pictures = picture_values(graph);
  return std::ranges::any_of(sites, [&](const PtqSite& site) {
    return is_of_pictures[static_cast<size_t>(site.reads.front())];
  });
}

void round_as_stored(const StoredTensor& tensor, std::span<float> values) {
  if (!tensor.dtype || *tensor.dtype == Dtype::f32) return;
  visit_format(*tensor.dtype, [&]<Dtype D>() {
    for (float& x : values) x = decode<D>(encode<D>(x));
  });
}

// Servers make one linear of those that read one value, and take all of them or none.
void warn_of_split_sites(const std::vector<PtqSite>& sites, const Log& log) {
  constexpr size_t kMaxNames = 12;
  std::vector<std::string> kept, others;
  for (const PtqSite& site : sites) {
    if (site.kept.empty() || site.linears.empty()) continue;
    kept.insert(kept.end(), site.kept.begin(), site.kept.end());
    others.push_back(site_name(site));
  }
  if (kept.empty()) return;
  const size_t n_kept = kept.size(), n_others = others.size();
  kept.resize(std::min(kept.size(), kMaxNames));
  others.resize(std::min(others.size(), kMaxNames));
  const auto rest = [](size_t n, size_t shown) {
    return n > shown ? fmt::format(" and {} more", n - shown) : std::string();
  };
  log.warning(
      "[ptq] --keep: {}{} stay as they are beside {}{}, which read the same values: servers that "
      "fuse them refuse the folder (keep all of them or none)",
      fmt::join(kept, ", "), rest(n_kept, kept.size()), fmt::join(others, "; "),
      rest(n_others, others.size()));
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
    std::vector<int32_t>& tokens = batch.ints("tokens");
    std::vector<uint8_t> flags(tokens.size());
    stream.read(first * seq, tokens, flags);
    complete(batch);
    rows.push_back(std::move(batch));
  }
  return rows;
}

std::vector<Batch> calibration_rows(const EvalRows& rows, int64_t samples) {
  const int64_t n_rows = std::min(rows.whole_samples(samples), rows.n_rows());
  int64_t n_batch = rows.whole_samples(kBatchRows);
  // Rows that say where pictures stand are of batches of one size.
  const bool shows =
      n_rows > 0 && rows.at(0, rows.whole_samples(1)).find(merged_rows_input().name) != nullptr;
  while (shows && n_rows % n_batch != 0) --n_batch;
  std::vector<Batch> batches;
  for (int64_t first = 0; first < n_rows; first += n_batch) {
    batches.push_back(rows.at(first, std::min(n_batch, n_rows - first)));
    complete(batches.back());
  }
  return batches;
}

PtqResult quantize_model(Files& files, const PtqRequest& request, Backend& backend,
                         const PtqHooks& hooks) {
  // Convolutions are quantized as they run: with the batch norms behind them.
  const bool has_norms = model_def(request.source.spec.kind).norm_behind != nullptr;
  const ModelSource source = has_norms ? with_folded_norms(request.source) : request.source;
  const PtqOptions& options = request.options;
  const ExportWeights weights(files, source);
  check_source(source, weights);
  const Graph graph = typed_forward(source.spec, request.rows.front());
  const ModelDef& model = model_def(source.spec.kind);
  std::vector<std::string> keep = options.keep;
  if (model.sees_pictures) keep.emplace_back("vision.patch_embedding");
  const std::vector<PtqSite> sites = find_sites(
      graph,
      {.keep = keep,
       .prefix = model.writes_text ? std::optional<std::string>() : std::string(model.prefix),
       .residual = options.residual});
  PtqProgress progress(files, request.out, identity_of(request, source.spec, weights),
                       request.start);
  if (progress.n_found() > 0) {
    hooks.log.info("{}: {} of {} sites were done before", request.out, progress.n_found(),
                   sites.size());
  }
  CalibrateHooks calibrate_hooks{.log = hooks.log, .store = progress.store(sites)};
  if (hooks.on_site) {
    calibrate_hooks.on_site = [&](size_t i, size_t n, const SiteResult&) {
      hooks.on_site(i, n, site_name(sites[i]));
    };
  }
  const auto results =
      calibrate({.graph = graph,
                 .sites = sites,
                 .rows = model.sees_pictures && reads_pictures(sites, graph)
                             ? with_repeated_pictures(request.rows, source.spec)
                             : request.rows,
                 .read = [&](const std::string& name) { return weights.compute().read(name); },
                 .round =
                     [&](const std::string& name, std::span<float> values) {
                       round_as_stored(weights.compute().stored(name), values);
                     }},
                options, backend, calibrate_hooks);
  const PtqModel quantized{source, weights, results, options};
  PtqResult result{.reports = {},
                   .layout = request.dequantize ? PtqLayout::dequantized : layout_of(quantized)};
  for (const SiteResult& site : results) {
    for (const QuantizedLinear& q : site.linears) result.reports.push_back(q.report);
    result.reports.insert(result.reports.end(), site.sums.begin(), site.sums.end());
  }
  if (result.layout == PtqLayout::ecosystem) {
    warn_of_split_sites(sites, hooks.log);
    warn_of_unread(quantized, hooks.log);
  }
  result.n_bytes = write_quantized(files, quantized, result.layout, request.out, hooks.log).n_bytes;
  progress.remove();
  return result;
}

}  // namespace octet
