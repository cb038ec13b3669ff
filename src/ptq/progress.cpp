#include "ptq/progress.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/json.h"
#include "io/safetensors.h"

namespace octet {
namespace {

constexpr const char* kFolder = "ptq-progress";
constexpr const char* kIdentity = "identity.json";

Dtype dtype_at(const Json& json, const char* key) {
  return dtype_from_name(json.at(key).get<std::string>()).value();
}

Json to_json(const QuantizationError& e) {
  return {e.mse, e.signal, e.clipped, e.flushed};
}
QuantizationError error_from(const Json& json) {
  return {json.at(0), json.at(1), json.at(2), json.at(3)};
}

Json to_json(const ActivationQuantizer& q) {
  Json json = {
      {"dtype", dtype_name(q.dtype)}, {"target", q.target}, {"group", q.group}, {"power", q.power}};
  if (q.scale) json["scale"] = static_cast<double>(*q.scale);
  return json;
}
ActivationQuantizer quantizer_from(const Json& json) {
  ActivationQuantizer q{.dtype = dtype_at(json, "dtype"),
                        .target = json.at("target"),
                        .group = json.at("group"),
                        .power = json.at("power")};
  if (json.contains("scale")) q.scale = static_cast<float>(json["scale"].get<double>());
  return q;
}

Json to_json(const SiteReport& r) {
  Json json = {{"name", r.name},
               {"weight_scales", {r.weight_scale_min, r.weight_scale_max}},
               {"weight", to_json(r.weight)},
               {"input", to_json(r.input)},
               {"output_snr_db", r.output_snr_db}};
  if (r.input_scale) json["input_scale"] = *r.input_scale;
  if (r.alpha) json["alpha"] = *r.alpha;
  return json;
}
SiteReport report_from(const Json& json) {
  SiteReport r{.name = json.at("name"),
               .weight_scale_min = json.at("weight_scales").at(0),
               .weight_scale_max = json.at("weight_scales").at(1),
               .weight = error_from(json.at("weight")),
               .input = error_from(json.at("input")),
               .output_snr_db = json.at("output_snr_db")};
  if (json.contains("input_scale")) r.input_scale = json["input_scale"].get<double>();
  if (json.contains("alpha")) r.alpha = json["alpha"].get<double>();
  return r;
}

Json linear_json(const QuantizedLinear& q) {
  const QuantizedWeight& w = q.weight;
  Json json = {{"weight", q.linear.weight},
               {"dtype", dtype_name(w.dtype)},
               {"scale_type", dtype_name(w.scale_type)},
               {"block", {w.block.rows, w.block.cols}},
               {"report", to_json(q.report)}};
  if (q.input) json["input"] = to_json(*q.input);
  return json;
}

template <typename T>
std::vector<T> read_values(const SafetensorsReader& file, const std::string& name) {
  const std::vector<std::byte> bytes = file.read(name);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

QuantizedLinear read_linear(const SafetensorsReader& file, const Json& json, size_t i,
                            const PtqLinear& linear) {
  QuantizedLinear q{.linear = linear, .report = report_from(json.at("report"))};
  QuantizedWeight& w = q.weight;
  w.dtype = dtype_at(json, "dtype");
  w.scale_type = dtype_at(json, "scale_type");
  w.shape = {linear.n_out, linear.n_in};
  w.block = {json.at("block").at(0), json.at("block").at(1)};
  w.data = read_values<uint8_t>(file, fmt::format("data.{}", i));
  w.scales = read_values<float>(file, fmt::format("scales.{}", i));
  const bool fits = std::ssize(w.data) == w.shape.n_elems() &&
                    std::ssize(w.scales) == w.grid().n_elems() &&
                    json.at("weight") == linear.weight;
  if (!fits) throw Error(ErrorCode::bad_data, "[ptq] {}: expected other sizes", file.path());
  if (json.contains("input")) q.input = quantizer_from(json["input"]);
  return q;
}

SiteResult read_site(const SafetensorsReader& file, const PtqSite& site) {
  SiteResult result;
  const Json json = parse_json(file.metadata().at("site"), file.path());
  if (json.at("linears").size() != site.linears.size()) {
    throw Error(ErrorCode::bad_data, "[ptq] {}: expected other linears", file.path());
  }
  for (size_t i = 0; i < site.linears.size(); ++i) {
    result.linears.push_back(read_linear(file, json.at("linears").at(i), i, site.linears[i]));
  }
  for (const auto& [name, quantizer] : json.at("residuals").items()) {
    result.residuals.emplace(name, quantizer_from(quantizer));
  }
  for (const Json& sum : json.at("sums")) result.sums.push_back(report_from(sum));
  for (const Json& name : json.at("norms")) {
    result.norms.emplace(name, read_values<float>(file, "norm." + name.get<std::string>()));
  }
  if (file.find("divisor") != nullptr) result.divisor = read_values<float>(file, "divisor");
  return result;
}

void write_site(Files& files, const std::string& path, const SiteResult& result) {
  std::vector<TensorSource> tensors;
  const auto add = [&](std::string name, Dtype dtype, const auto& values) {
    tensors.push_back(span_source(tensor_decl(std::move(name), dtype, {std::ssize(values)}),
                                  std::as_bytes(std::span(values))));
  };
  Json json = {{"linears", Json::array()},
               {"residuals", Json::object()},
               {"sums", Json::array()},
               {"norms", Json::array()}};
  for (size_t i = 0; i < result.linears.size(); ++i) {
    json["linears"].push_back(linear_json(result.linears[i]));
    add(fmt::format("data.{}", i), Dtype::u8, result.linears[i].weight.data);
    add(fmt::format("scales.{}", i), Dtype::f32, result.linears[i].weight.scales);
  }
  for (const auto& [name, q] : result.residuals) json["residuals"][name] = to_json(q);
  for (const SiteReport& sum : result.sums) json["sums"].push_back(to_json(sum));
  for (const auto& [name, values] : result.norms) {
    json["norms"].push_back(name);
    add("norm." + name, Dtype::f32, values);
  }
  if (!result.divisor.empty()) add("divisor", Dtype::f32, result.divisor);
  write_atomically(files, path, [&](FileWriter& out) {
    write_safetensors(out, tensors, {{"site", json.dump()}});
  });
}

// Removes what an earlier call that was ended wrote; config.json first: no folder may seem whole.
void remove_written(Files& files, const std::string& out) {
  const std::string config = join_path(out, "config.json");
  if (files.exists(config)) files.remove(config);
  for (const DirectoryEntry& entry : files.list(out)) {
    const bool is_weights =
        entry.name.starts_with("model") &&
        (entry.name.ends_with(".safetensors") || entry.name.ends_with(".safetensors.index.json"));
    if (is_weights && entry.kind == EntryKind::file) files.remove(join_path(out, entry.name));
  }
}

}  // namespace

PtqProgress::PtqProgress(Files& files, const std::string& out, const Json& identity, PtqStart start)
    : files_(files), out_(out), folder_(join_path(out, kFolder)) {
  const std::string path = join_path(folder_, kIdentity);
  const bool is_begun = files.exists(path);
  if (is_begun && start == PtqStart::go_on) check(path, identity);
  if (is_begun) remove_written(files, out);
  if (is_begun && start == PtqStart::go_on) {
    while (files.exists(site_path(static_cast<size_t>(n_found_)))) ++n_found_;
    return;
  }
  if (is_begun) remove();
  if (!is_begun && files.exists(out) && (!files.is_directory(out) || !files.list(out).empty())) {
    throw Error(ErrorCode::invalid_argument,
                "[ptq] --out: expected a free name or an empty folder, got '{}' with files", out);
  }
  files.create_directories(folder_);
  write_atomically(files, path, identity.dump(2) + "\n");
}

void PtqProgress::check(const std::string& path, const Json& identity) const {
  const Json begun = parse_own_json(files_.read_text(path));
  if (begun == identity) return;
  const auto text_of = [](const Json& of, const std::string& key) {
    return of.is_object() && of.contains(key) ? of[key].dump() : std::string("none");
  };
  std::vector<std::string> got;
  for (const auto& [key, value] : identity.items()) {
    if (text_of(begun, key) == value.dump()) continue;
    got.push_back(fmt::format("{} {} (begun with {})", key, value.dump(), text_of(begun, key)));
  }
  const Json before = begun.is_object() ? begun : Json::object();
  for (const auto& [key, value] : before.items()) {
    if (!identity.contains(key)) got.push_back(fmt::format("no {}", key));
  }
  throw Error(
      ErrorCode::invalid_argument,
      "[ptq] --out: expected the quantization begun before in '{}', or --overwrite to begin "
      "anew, got {}",
      out_, fmt::join(got, ", "));
}

std::string PtqProgress::site_path(size_t site) const {
  return join_path(folder_, fmt::format("site-{:05}.safetensors", site));
}

SiteStore PtqProgress::store(const std::vector<PtqSite>& sites) {
  return {.load = [this, &sites](size_t i) -> std::optional<SiteResult> {
            if (static_cast<int64_t>(i) >= n_found_) return std::nullopt;
            try {
              return read_site(SafetensorsReader::open(files_, site_path(i)), sites[i]);
            } catch (const std::exception&) {  // damaged: done again
              return std::nullopt;
            }
          },
          .save = [this](size_t i,
                         const SiteResult& result) { write_site(files_, site_path(i), result); }};
}

void PtqProgress::remove() {
  for (const DirectoryEntry& entry : files_.list(folder_)) {
    if (entry.kind == EntryKind::file) files_.remove(join_path(folder_, entry.name));
  }
  files_.remove(folder_);
}

}  // namespace octet
