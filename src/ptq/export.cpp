#include "ptq/export.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/integer.h"
#include "infer/tensor_streams.h"
#include "infer/weight_layouts.h"

namespace octet {
namespace {

std::string module_of(const std::string& weight) {
  return weight.substr(0, weight.rfind('.'));
}

// Values as the weight is stored: [in, out] is transposed.
template <typename T>
std::vector<T> as_stored(const std::vector<T>& values, const MatrixShape& shape, bool transpose) {
  return transpose ? transposed(values, shape) : values;
}

// A source whose bytes are made when they are written.
template <typename Make>
TensorSource made(TensorDecl decl, const Make& make) {
  return {std::move(decl), [make](const ByteSink& sink) { sink(make()); }};
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<int64_t> stored_shape(const MatrixShape& shape, bool transpose) {
  return transpose ? std::vector{shape.cols, shape.rows} : std::vector{shape.rows, shape.cols};
}

// True if one scale is for the whole tensor by the format's words: not the only block of a grid.
bool is_tensor_scale(const QuantizedWeight& w, PtqFormat format) {
  return w.scales.size() == 1 && !has_own_groups(format);
}

TensorSource scale_source(const QuantizedLinear& q, PtqFormat format, const std::string& name) {
  const QuantizedWeight& w = q.weight;
  const bool transpose = q.linear.is_in_out, are_powers = w.scale_type == Dtype::e8m0;
  const auto shape =
      is_tensor_scale(w, format) ? std::vector<int64_t>{1} : stored_shape(w.grid(), transpose);
  return made(tensor_decl(name, are_powers ? Dtype::u8 : Dtype::f32, shape),
              [&w, transpose, are_powers] {
                const std::vector<float> scales = as_stored(w.scales, w.grid(), transpose);
                if (!are_powers) return bytes_of(scales);
                std::vector<std::byte> powers;
                powers.reserve(scales.size());
                for (const float scale : scales)
                  powers.push_back(static_cast<std::byte>(encode<Dtype::e8m0>(scale)));
                return powers;
              });
}

void add_quantized(const QuantizedLinear& q, PtqFormat format, std::vector<TensorSource>& out) {
  const std::string& name = q.linear.weight;
  const bool transpose = q.linear.is_in_out;
  const bool is_block = format == PtqFormat::fp8_block;
  out.push_back(made(
      tensor_decl(name, q.weight.dtype, stored_shape(q.weight.shape, transpose)),
      [&q, transpose] { return bytes_of(as_stored(q.weight.data, q.weight.shape, transpose)); }));
  out.push_back(scale_source(q, format, name + (is_block ? "_scale_inv" : "_scale")));
  if (q.input && q.input->scale) {
    out.push_back(made(tensor_decl(input_scale_names(name).front(), Dtype::f32, {1}),
                       [&q] { return bytes_of(std::vector<float>{*q.input->scale}); }));
  }
}

// The bytes q + 128 of a row, four in an I32, the last padded with zeros.
std::vector<std::byte> packed_bytes(const QuantizedWeight& w) {
  const int64_t stride = ceil_div(w.shape.cols, int64_t{4}) * 4;
  std::vector<std::byte> packed(static_cast<size_t>(w.shape.rows * stride));
  for (int64_t r = 0; r < w.shape.rows; ++r) {
    for (int64_t c = 0; c < w.shape.cols; ++c) {
      const uint8_t code = w.data[static_cast<size_t>(r * w.shape.cols + c)];
      packed[static_cast<size_t>(r * stride + c)] = static_cast<std::byte>(code ^ 0x80u);
    }
  }
  return packed;
}

// INT8 for weights alone. One scale for the tensor is written for each row, as servers have no
// other of the kind.
void add_packed(const QuantizedLinear& q, std::vector<TensorSource>& out) {
  const QuantizedWeight& w = q.weight;
  const std::string module = module_of(q.linear.weight);
  out.push_back(made({module + std::string(kPackedSuffix),
                      SafeDtype::i32,
                      {w.shape.rows, ceil_div(w.shape.cols, int64_t{4})}},
                     [&w] { return packed_bytes(w); }));
  out.push_back(made({module + std::string(kPackedShapeSuffix), SafeDtype::i64, {2}}, [&w] {
    return bytes_of(std::vector<int64_t>{w.shape.rows, w.shape.cols});
  }));
  std::vector<float> scales = w.scales;
  if (scales.size() == 1) scales.assign(static_cast<size_t>(w.shape.rows), w.scales.front());
  const int64_t n_groups = std::ssize(scales) / w.shape.rows;
  out.push_back(made(tensor_decl(q.linear.weight + "_scale", Dtype::f32, {w.shape.rows, n_groups}),
                     [scales = std::move(scales)] { return bytes_of(scales); }));
}

// In the shape and order of files.
void add_dequantized(const QuantizedLinear& q, const ExportWeights& weights, const Shape& shape,
                     std::vector<TensorSource>& out) {
  const auto& all = weights.parameters();
  const auto parameter = std::ranges::find(all, q.linear.weight, &ParameterSpec::name);
  CHECK(parameter != all.end());
  const TensorDecl decl = tensor_decl(q.linear.weight, Dtype::bf16, shape);
  out.push_back({decl, [&q, &own = *parameter, decl](const ByteSink& sink) {
                   const std::vector<float> values =
                       as_stored(dequantized(q.weight), q.weight.shape, q.linear.is_in_out);
                   const auto read = [&values](int64_t first, std::span<float> to) {
                     std::copy_n(values.begin() + first, to.size(), to.begin());
                   };
                   rounded(decl, in_file_order(own, read)).emit(sink);
                 }});
}

// True if weights are INT8 and inputs are not quantized.
bool is_packed(const QuantizedLinear& q) {
  return q.weight.dtype == Dtype::int8 && !q.input;
}

using Linears = std::map<std::string, const QuantizedLinear*>;

Linears linears_of(const PtqModel& model) {
  Linears linears;
  for (const SiteResult& site : model.sites) {
    for (const QuantizedLinear& q : site.linears) linears[q.linear.weight] = &q;
  }
  return linears;
}

std::vector<TensorSource> tensors_of(const PtqModel& model, PtqLayout layout) {
  const Linears linears = linears_of(model);
  std::map<std::string, const std::vector<float>*> norms;
  for (const SiteResult& site : model.sites) {
    for (const auto& entry : site.norms) norms[entry.first] = &entry.second;
  }
  const bool is_dequantized = layout == PtqLayout::dequantized;
  std::vector<TensorSource> tensors;
  const auto add_linear = [&](const QuantizedLinear& q, const Shape& shape) {
    if (is_dequantized) return add_dequantized(q, model.weights, shape, tensors);
    const bool packs = layout == PtqLayout::ecosystem && is_packed(q);
    packs ? add_packed(q, tensors) : add_quantized(q, model.options.format, tensors);
  };
  for (TensorSource& source :
       export_tensors(model.weights, is_dequantized ? ExportDtype::bf16 : ExportDtype::as_stored)) {
    const std::string& name = source.decl.name;
    if (const auto q = linears.find(name); q != linears.end()) {
      add_linear(*q->second, source.decl.shape);
    } else if (const auto norm = norms.find(name); norm != norms.end()) {
      const Dtype dtype = source.decl.dtype.value();
      tensors.push_back(
          made(tensor_decl(name, dtype, source.decl.shape),
               [values = norm->second, dtype] { return encode_weights(*values, dtype); }));
    } else {
      tensors.push_back(std::move(source));
    }
  }
  return tensors;
}

// Modules of linears that stay as they are.
std::vector<std::string> kept_modules(const PtqModel& model, const Linears& linears) {
  std::vector<std::string> kept = {module_of(std::string(model.weights.model().head))};
  if (linears.contains(std::string(model.weights.model().head))) kept.clear();
  for (const ParameterSpec& p : model.weights.parameters()) {
    if (model.weights.is_linear(p) && !linears.contains(p.name)) kept.push_back(module_of(p.name));
  }
  return kept;
}

std::string_view word_of(Dtype dtype) {
  return dtype == Dtype::int8 ? "int" : "float";
}

Json weights_json(const QuantizedLinear& q) {
  const QuantizedWeight& w = q.weight;
  const bool is_mx = w.scale_type == Dtype::e8m0;
  const bool is_one = w.scales.size() == 1 && !is_mx;
  const bool is_tensor = is_one && !is_packed(q);
  const bool is_channel = is_one || (w.block.rows == 1 && w.block.cols == w.shape.cols && !is_mx);
  Json json = {{"num_bits", 8},
               {"type", word_of(w.dtype)},
               {"symmetric", true},
               {"dynamic", false},
               {"strategy", is_tensor    ? "tensor"
                            : is_channel ? "channel"
                                         : "group"},
               {"group_size", nullptr},
               {"actorder", nullptr}};
  if (!is_tensor && !is_channel) json["group_size"] = w.block.cols;
  if (is_mx) json["scale_dtype"] = "torch.uint8";
  return json;
}

Json inputs_json(const std::optional<ActivationQuantizer>& input) {
  if (!input) return nullptr;
  const bool is_token = input->group == kWholeRow, is_tensor = input->group == 0;
  Json json = {{"num_bits", 8},
               {"type", word_of(input->dtype)},
               {"symmetric", true},
               {"dynamic", !input->scale.has_value()},
               {"strategy", is_tensor  ? "tensor"
                            : is_token ? "token"
                                       : "group"},
               {"group_size", nullptr}};
  if (!is_token && !is_tensor) json["group_size"] = input->group;
  if (input->power) json["scale_dtype"] = "torch.uint8";
  return json;
}

// Linears that are alike are one group, in the order of the model.
Json groups_json(const Linears& linears, const std::function<Json(const QuantizedLinear&)>& of) {
  Json groups = Json::array();
  for (const auto& [name, q] : linears) {
    const Json scheme = of(*q);
    const auto same = std::ranges::find_if(groups, [&](Json group) {
      group.erase("targets");
      return group == scheme;
    });
    Json& group = same != groups.end() ? *same : (groups.push_back(scheme), groups.back());
    group["targets"].push_back(module_of(name));
  }
  return groups;
}

Json compressed_tensors_json(const PtqModel& model, const Linears& linears) {
  constexpr std::string_view kFormats[] = {"float-quantized", "", "", "int-quantized",
                                           "mxfp8-quantized", ""};
  const bool packs = is_packed(*linears.begin()->second);
  const std::string_view format =
      packs ? "pack-quantized" : kFormats[static_cast<int>(model.options.format)];
  Json groups = groups_json(linears, [&](const QuantizedLinear& q) {
    return Json{{"weights", weights_json(q)},
                {"input_activations", inputs_json(q.input)},
                {"output_activations", nullptr},
                {"format", format}};
  });
  if (groups.size() == 1) groups[0]["targets"] = {"Linear"};
  Json named = Json::object();
  for (size_t i = 0; i < groups.size(); ++i) named[fmt::format("group_{}", i)] = groups[i];
  return {{"quant_method", "compressed-tensors"},   {"format", format},
          {"quantization_status", "compressed"},    {"kv_cache_scheme", nullptr},
          {"ignore", kept_modules(model, linears)}, {"config_groups", named}};
}

std::string_view scaling_word(const ActivationQuantizer& input) {
  const ActivationScaling scaling = input.scale                ? ActivationScaling::fixed
                                    : input.group == 0         ? ActivationScaling::tensor
                                    : input.group == kWholeRow ? ActivationScaling::token
                                                               : ActivationScaling::group;
  return enum_name(scaling);
}

Json own_json(const PtqModel& model, const Linears& linears) {
  Json groups = groups_json(linears, [](const QuantizedLinear& q) {
    const BlockShape& block = q.weight.block;
    const bool transpose = q.linear.is_in_out;
    Json group = {
        {"format", dtype_name(q.weight.dtype)},
        {"block", {transpose ? block.cols : block.rows, transpose ? block.rows : block.cols}}};
    if (!q.input) return group;
    group["inputs"] = {{"format", dtype_name(q.input->dtype)},
                       {"scaling", scaling_word(*q.input)},
                       {"power", q.input->power}};
    if (group["inputs"]["scaling"] == "group") group["inputs"]["group"] = q.input->group;
    return group;
  });
  Json json = {
      {"quant_method", "octet"}, {"groups", groups}, {"ignore", kept_modules(model, linears)}};
  Json scales = Json::object();
  for (const SiteResult& site : model.sites) {
    for (const auto& [name, q] : site.residuals) scales[name] = static_cast<double>(*q.scale);
  }
  if (!scales.empty()) {
    const Dtype dtype = element_dtype(model.options.format);
    json["residual"] = {{"format", dtype_name(dtype)}, {"scales", scales}};
  }
  return json;
}

// The lack of vLLM's schemes of compressed-tensors (python/octet/check_folder.py has their rules).
std::string_view missing_scheme(const PtqOptions& o, const Linears& linears) {
  if (has_own_groups(o.format)) return "";
  const bool is_grouped = std::ranges::any_of(linears, [](const auto& entry) {
    const QuantizedWeight& w = entry.second->weight;
    return w.block.rows == 1 && w.block.cols < w.shape.cols;
  });
  const bool is_alone = o.format == PtqFormat::int8 && o.activations == ActivationScaling::none;
  if (is_grouped && !is_alone) return "scales for groups of weights";
  const bool is_current = o.activations == ActivationScaling::tensor;
  if (o.format == PtqFormat::int8 && is_current) return "INT8 inputs scaled by the tensor at hand";
  return "";
}

void warn_of_input_scales(const PtqModel& model, const Log& log) {
  for (const SiteResult& site : model.sites) {
    for (const QuantizedLinear& q : site.linears) {
      const QuantizedLinear& first = site.linears.front();
      if (!q.input || !first.input || q.input->scale == first.input->scale) continue;
      return log.warning(
          "[ptq] {} and {} read one value by scales {} and {}: servers that fuse them take the "
          "largest; --share-inputs decides for one",
          first.linear.name, q.linear.name, *first.input->scale, *q.input->scale);
    }
  }
}

}  // namespace

void warn_of_unread(const PtqModel& model, const Log& log) {
  if (model.options.format == PtqFormat::fp8_block) {
    for (const auto& [name, q] : linears_of(model)) {
      const Shape shape = {q->weight.shape.rows, q->weight.shape.cols};
      const auto text = partial_blocks_warning("ptq", name, shape, "e4m3 has none");
      if (!text) continue;
      log.write(LogLevel::warning, *text);
      break;
    }
  }
  if (const auto what = missing_scheme(model.options, linears_of(model)); !what.empty()) {
    log.warning("[ptq] transformers loads {}, vLLM has no scheme for them", what);
  }
  if (linears_of(model).contains(std::string(model.weights.model().head))) {
    log.warning("[ptq] a quantized head is loaded by transformers, and by few servers");
  }
  warn_of_input_scales(model, log);
}

PtqLayout layout_of(const PtqModel& model) {
  const PtqFormat format = model.options.format;
  const bool is_own = format == PtqFormat::hif8 || format == PtqFormat::e5m2 ||
                      model.options.residual || !model.weights.model().plain_linears;
  const bool has_convolution = std::ranges::any_of(
      model.weights.parameters(), [linears = linears_of(model)](const ParameterSpec& p) {
        return !p.file_shape.empty() && linears.contains(p.name);
      });
  bool fits = !has_convolution;
  for (const SiteResult& site : model.sites) {
    for (const QuantizedLinear& q : site.linears) {
      const BlockShape& block = q.weight.block;
      fits = fits && (format == PtqFormat::fp8_block || q.weight.shape.cols % block.cols == 0);
    }
  }
  return is_own || !fits ? PtqLayout::own : PtqLayout::ecosystem;
}

ExportResult write_quantized(Files& files, const PtqModel& model, PtqLayout layout,
                             const std::string& folder, const Log& log) {
  const Linears linears = linears_of(model);
  ExportContent content{.tensors = tensors_of(model, layout)};
  if (layout == PtqLayout::own) content.quantization = own_json(model, linears);
  if (layout == PtqLayout::ecosystem) {
    content.quantization = model.options.format == PtqFormat::fp8_block
                               ? fp8_block_config(kept_modules(model, linears))
                               : compressed_tensors_json(model, linears);
  }
  return write_model_folder(files, model.source, folder, content, {.log = log});
}

}  // namespace octet
