#include "cli/commands.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/named_enum.h"
#include "cli/backend.h"
#include "cli/enum_option.h"
#include "cli/model_flags.h"
#include "cli/ptq_data.h"
#include "cli/shown_table.h"
#include "infer/picture_prompt.h"
#include "ptq/ptq.h"

namespace octet {
namespace {

constexpr int64_t kLongestHessianRow = 2048, kLongestSearchRow = 512;

struct PtqFlags : ModelFlags {
  std::string out, activations, dequantize;
  std::vector<std::string> keep;
  std::vector<int> biases;
  PtqDataFlags data = {};
  PtqOptions options = {};
  bool overwrite = false, quantize_head = false;
};

// Everything a quantization needs, opened once.
struct PtqSession {
  Files& files;
  const PtqFlags& flags;
  Log log;
  ModelSource source;
  Backend backend;
  std::unique_ptr<PtqData> data;
};

PtqOptions options_of(const PtqFlags& flags) {
  PtqOptions options = flags.options;
  if (!flags.activations.empty()) {
    options.activations = enum_from_name<ActivationScaling>(flags.activations);
  }
  if (flags.quantize_head) options.keep.clear();
  options.keep.insert(options.keep.end(), flags.keep.begin(), flags.keep.end());
  if (!flags.biases.empty()) options.exponent_bias = flags.biases.front();
  return checked(options);
}

// Of one row there is no standard error.
std::string figure_text(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.6f}", value);
}

// Decibels of an error; none where a value is exact, or where there is no signal.
std::string snr_text(double decibels, const GlobalOptions& options) {
  if (decibels >= kMostDecibels) return options.json ? "-" : "exact";
  return decibels <= -kMostDecibels ? "-" : fmt::format("{:.2f}", decibels);
}

Table layer_table(const PtqResult& result, const GlobalOptions& options) {
  const auto optional = [](const std::optional<double>& x) {
    return x ? fmt::format("{:.6g}", *x) : std::string("-");
  };
  const auto percent = [](double share) { return fmt::format("{:.4f}", 100 * share); };
  Table table{{"layer", "weight_scale", "input_scale", "alpha", "weight_mse", "weight_snr_db",
               "weight_clipped_%", "weight_flushed_%", "input_mse", "input_snr_db",
               "input_clipped_%", "input_flushed_%", "output_snr_db"},
              {}};
  for (const SiteReport& r : result.reports) {
    const bool is_sum = r.weight_scale_max == 0;
    const auto of_weight = [&](std::string text) { return is_sum ? "-" : text; };
    const std::string scale =
        r.weight_scale_min == r.weight_scale_max ? fmt::format("{:.6g}", r.weight_scale_min)
        : options.json ? fmt::format("[{:.3g}, {:.3g}]", r.weight_scale_min, r.weight_scale_max)
                       : fmt::format("{:.3g}..{:.3g}", r.weight_scale_min, r.weight_scale_max);
    table.rows.push_back({r.name, of_weight(scale), optional(r.input_scale), optional(r.alpha),
                          of_weight(fmt::format("{:.4g}", r.weight.mse)),
                          of_weight(snr_text(r.weight.snr_db(), options)),
                          of_weight(percent(r.weight.clipped)),
                          of_weight(percent(r.weight.flushed)), fmt::format("{:.4g}", r.input.mse),
                          snr_text(r.input.snr_db(), options), percent(r.input.clipped),
                          percent(r.input.flushed), of_weight(snr_text(r.output_snr_db, options))});
  }
  return table;
}

// Means of each figure before and after, and of the change, with standard errors over the samples;
// that of the change is paired.
void add_figures(PtqSession& session, const PtqRequest& request, const PtqFigures& before,
                 Table& table) {
  const PtqFigures after = session.data->evaluate(
      find_model_source(session.files, request.out, session.log), session.backend);
  int64_t n_counted = 0;
  for (const NllSum& row : before.all.front().samples) n_counted += row.n_tokens;
  const std::optional<int> bias = request.options.exponent_bias;
  Table line{
      {"out", "format", "method", "bias", before.counted, "rows"},
      {cells(request.out, enum_name(request.options.format), enum_name(request.options.method),
             bias ? fmt::to_string(*bias) : "-", n_counted, before.all.front().samples.size())}};
  const auto add = [&](std::string column, std::string value) {
    line.columns.push_back(std::move(column));
    line.rows.front().push_back(std::move(value));
  };
  for (size_t i = 0; i < before.all.size(); ++i) {
    const PairedNll paired = paired_nll(before.all[i].samples, after.all[i].samples);
    const std::pair<const char*, double> values[] = {
        {"before", paired.before},     {"before_se", paired.before_error},
        {"after", paired.after},       {"after_se", paired.after_error},
        {"change", paired.difference}, {"change_se", paired.difference_error}};
    for (const auto& [what, value] : values)
      add(fmt::format("{}_{}", before.all[i].name, what), figure_text(value));
  }
  for (size_t i = 0; i < before.whole.size(); ++i) {
    const auto& [name, value] = before.whole[i];
    add(name + "_before", fmt::format("{:.6f}", value));
    add(name + "_after", fmt::format("{:.6f}", after.whole[i].second));
    add(name + "_change", fmt::format("{:.6f}", after.whole[i].second - value));
  }
  if (before.has_perplexity) {
    const PairedNll nll = paired_nll(before.all[0].samples, after.all[0].samples);
    const double ratio = std::exp(nll.difference);
    add("perplexity_before", fmt::format("{:.4f}", std::exp(nll.before)));
    add("perplexity_after", fmt::format("{:.4f}", std::exp(nll.after)));
    add("perplexity_change_%", fmt::format("{:.3f}", 100 * (ratio - 1)));
    add("perplexity_change_se_%", std::isnan(nll.difference_error)
                                      ? "-"
                                      : fmt::format("{:.3f}", 100 * ratio * nll.difference_error));
  }
  if (table.columns.empty()) table.columns = line.columns;
  table.rows.push_back(line.rows.front());
}

std::string_view layout_word(PtqLayout layout) {
  constexpr std::string_view kWords[] = {"ecosystem", "octet", "dequantized"};
  return kWords[static_cast<int>(layout)];
}

PtqResult quantize(PtqSession& session, const PtqRequest& request) {
  const PtqHooks hooks{.log = session.log,
                       .on_site = [&](size_t i, size_t n, const std::string& name) {
                         session.log.info("[{}/{}] {}", i + 1, n, name);
                       }};
  return quantize_model(session.files, request, session.backend, hooks);
}

void print(const GlobalOptions& options, const std::vector<Table>& layers, const Table& figures) {
  if (options.json) {
    OrderedJson json = {{"layers", OrderedJson::array()}, {"models", table_json(figures)}};
    for (const Table& table : layers) json["layers"].push_back(table_json(table));
    if (layers.size() == 1) json["layers"] = json["layers"][0];
    return write_out(json_text(json));
  }
  if (layers.size() == 1) write_out(shown_text(options, layers.front()) + "\n");
  print_table(options, figures);
}

// The context of calibration rows: GPTQ's Hessians want long ones, searches few tokens.
int64_t calibration_seq(const PtqOptions& options, const ModelSource& source) {
  const int64_t longest =
      (options.method == PtqMethod::gptq ? kLongestHessianRow : kLongestSearchRow) +
      picture_tokens(source.spec);
  return options.seq > 0 ? options.seq : std::min(source.seq, longest);
}

PtqRequest request_of(const PtqSession& session, const PtqOptions& how) {
  const PtqFlags& flags = session.flags;
  PtqRequest request{.source = session.source,
                     .options = how,
                     .out = flags.out,
                     .rows = session.data->calibration(how.samples),
                     .dequantize = !flags.dequantize.empty(),
                     .start = flags.overwrite ? PtqStart::begin_anew : PtqStart::go_on};
  int64_t n_rows = 0;
  for (const Batch& batch : request.rows) n_rows += batch.batch;
  if (n_rows < how.samples) {
    session.log.warning("--calib: expected {} rows of {} tokens, got {}: going on with these",
                        how.samples, request.rows.front().seq, n_rows);
  }
  return request;
}

void run_ptq(const PtqFlags& flags, const CLI::App& command, const GlobalOptions& options) {
  const bool evaluates = !flags.data.eval.empty();
  const PtqMethod method = flags.options.method;
  expect_flags_read(command,
                    {{"--damping", method == PtqMethod::gptq, "--method gptq"},
                     {"--percentile", method == PtqMethod::percentile, "--method percentile"},
                     {"--max-tokens", evaluates, "--eval"},
                     {"--limit", evaluates, "--eval"},
                     {"--batch", evaluates, "--eval"}});
  Files& files = posix_files();
  const Log log = make_log(options);
  PtqOptions how = options_of(flags);
  if (flags.biases.size() > 1 && flags.data.eval.empty()) {
    throw Error(ErrorCode::invalid_argument, "--bias: expected --eval with several, got none");
  }
  ModelSource source = open_model_source(flags, log);
  PtqDataFlags data_flags = flags.data;
  data_flags.seq = calibration_seq(how, source);
  if (!source.run) source.spec.rope_seq = data_flags.seq;
  auto data = open_ptq_data(source, data_flags, log);
  PtqSession session{files, flags, log, std::move(source), open_backend(options), std::move(data)};
  PtqRequest request = request_of(session, how);
  std::optional<PtqFigures> before;
  if (session.data->has_evaluation())
    before = session.data->evaluate(session.source, session.backend);
  std::vector<Table> layers;
  Table figures;
  const bool sweeps = flags.biases.size() > 1;
  const auto once = [&] {
    const PtqResult result = quantize(session, request);
    log.info("{}: {} bytes of tensors, layout {}", request.out, result.n_bytes,
             layout_word(result.layout));
    layers.push_back(layer_table(result, options));
    if (before) add_figures(session, request, *before, figures);
  };
  if (!sweeps) {
    once();
  }
  for (size_t i = 0; sweeps && i < flags.biases.size(); ++i) {
    request.options.exponent_bias = flags.biases[i];
    request.out = join_path(flags.out, fmt::format("bias-{}", flags.biases[i]));
    once();
  }
  print(options, layers, figures);
}

void add_scale_options(CLI::App& ptq, PtqFlags& f) {
  add_enum_option(ptq, "--weights", f.options.weights, "what a scale of a weight covers");
  ptq.add_option("--activations", f.activations,
                 "what a scale of an input covers; token: made as it comes")
      ->check(one_of({"none", "tensor", "token"}));
  add_enum_option(ptq, "--target", f.options.target,
                  "algorithm1: the layer's output that the error is taken against: of the "
                  "unquantized model (default), or of its own weights on the inputs that the "
                  "quantized model gives it");
  ptq.add_flag("--share-inputs", f.options.share_inputs,
               "algorithm1: one scale of their input for linears that read one value, as servers "
               "that fuse q, k and v take it");
  ptq.add_option("--percentile", f.options.percentile, "of magnitudes that are not clipped");
  ptq.add_flag("--residual", f.options.residual, "quantize the operands of residual sums too");
  ptq.add_option("--bias", f.biases,
                 "exponent bias of a direct cast; several: a folder OUT/bias-N for each")
      ->delimiter(',')
      ->check(CLI::Range(1, 30));
}

}  // namespace

void add_ptq_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<PtqFlags>();
  PtqFlags& f = *flags;
  CLI::App* ptq = app.add_subcommand("ptq", "quantize a trained model to 8 bits");
  add_model_flags(*ptq, f);
  add_enum_option(*ptq, "--format", f.options.format, "of weights and of the inputs of linears")
      ->required();
  add_enum_option(*ptq, "--method", f.options.method, "how scales are chosen")->required();
  ptq->add_option("--calib", f.data.calib,
                  "calibration text, folders or token shards; of encoders what they train on")
      ->required()
      ->delimiter(',');
  ptq->add_option("--out", f.out, "the folder to write: a name that is free")->required();
  ptq->add_option("--eval", f.data.eval, "the same to evaluate on, before and after")
      ->delimiter(',');
  ptq->add_option(
      "--keep", f.keep,
      "linears that stay as they are beside lm_head (of encoders the last), by pattern");
  ptq->add_flag("--quantize-head", f.quantize_head,
                "quantize it too, where its matrix is not the embedding's");
  ptq->add_flag("--overwrite", f.overwrite,
                "begin anew where --out holds an unfinished quantization");
  add_scale_options(*ptq, f);
  ptq->add_option("--samples", f.options.samples,
                  "calibration rows (pictures, texts); 0: 8, or 128 of gptq")
      ->check(CLI::NonNegativeNumber);
  ptq->add_option("--seq", f.options.seq, "tokens of a calibration row; 0: the method's choice")
      ->check(CLI::NonNegativeNumber);
  ptq->add_option("--damping", f.options.damping, "gptq: share of the Hessian's mean diagonal");
  ptq->add_option("--dequantize", f.dequantize, "write weights in this dtype, for other programs")
      ->check(one_of({"bf16"}));
  ptq->add_option("--split-on,--separator", f.data.split_on,
                  "text between documents; each is then evaluated on its own");
  ptq->add_option("--max-tokens", f.data.eval_tokens, "tokens of a text to evaluate on; 0: all")
      ->check(CLI::NonNegativeNumber);
  ptq->add_option("--limit", f.data.eval_rows, "rows of an encoder to evaluate on; 0: all")
      ->check(CLI::NonNegativeNumber);
  ptq->add_option("--batch", f.data.batch, "rows to evaluate at a time")
      ->check(CLI::PositiveNumber);
  ptq->callback([flags, ptq, &options] { run_ptq(*flags, *ptq, options); });
}

}  // namespace octet
